----------------------------- MODULE Properties -----------------------------
(***************************************************************************)
(* What must hold of the protocol, by the names of docs and audit: state    *)
(* invariants, properties of single steps, and liveness under fairness; and *)
(* a guard for each, the situation in which it could fail. tlc.py demands   *)
(* that every guard is reached, so that nothing holds for want of trying.   *)
(***************************************************************************)
EXTENDS Protocol

CONSTANT GUARDS    \* the guards that this configuration is to reach

Covered(states) == UNION {Span(batches[s]) : s \in InState(batches, states)}
LIVE == BLOCKING \cup RESOLVED

(* A step of the ledger inside one generation, and not the restoration of a backup, which undoes what was done. *)
Ordinary == work' # work /\ restores' = restores /\ generation' = generation
Is(s, states) == s \in InState(batches, states)
State(s) == batches[s].state
StateAfter(s) == IF s \in DOMAIN batches' THEN batches'[s].state ELSE "gone"

-----------------------------------------------------------------------------
(* The checkpoint *)

CheckpointNeverAheadOfTerminalizedPrefix == base .. (committed - 1) \subseteq Covered(RESOLVED)

CheckpointOrderingInvariant ==
  \A s \in InState(batches, LIVE) : batches[s].attempts > 0 /\ batches[s].start < committed => State(s) \in RESOLVED

UnresolvedWorkNotCommittedPast == \A s \in InState(batches, {"in_flight", "held"}) : batches[s].start >= committed

PlannedWorkVisibleToCheckpoint == \A s \in InState(batches, {"planned"}) : batches[s].start >= committed

CommittedNeverAheadOfPlanned == committed <= planned_end

CommittedMonotonic == [][Ordinary => committed' >= committed]_vars

FailureTerminalizationPreservesCheckpoint ==
  [][Ordinary => \A s \in in_flight : StateAfter(s) \in {"planned", "held"} => committed' <= batches[s].start]_vars

HeldTransitionsDoNotCommit ==
  [][Ordinary => \A s \in blocking : StateAfter(s) \in BLOCKING /\ (State(s) = "held") # (StateAfter(s) = "held")
                                     => committed' = committed]_vars

(* It stays until the cancelled work is begun again or resolved, and nothing at or beyond it is committed till then. *)
CancellationWatermarkBlocks ==
  [][Ordinary => \A s \in Cancelled(batches) :
       \/ StateAfter(s) \in RESOLVED \cup {"in_flight", "superseded"}
       \/ /\ batches'[s].cancelled
          /\ \A o \in DOMAIN batches' : o >= s => Span(batches'[o]) \cap (committed .. (committed' - 1)) = {}]_vars

QuiescenceHasNoSilentStrandedWork == blocking = {} /\ Gaps = {} => committed = planned_end

-----------------------------------------------------------------------------
(* Batches, ranges, receipts *)

NoDoubleComplete ==
  [][Ordinary => \A s \in InState(batches, RESOLVED \ {"sent"}) : StateAfter(s) = State(s)]_vars

RangesTileTheSource ==
  /\ \A s, o \in InState(batches, LIVE) : s # o => ~Overlap(batches[s], batches[o])
  /\ Covered(LIVE) \cup Gaps = base .. (planned_end - 1)
  /\ \A x, y \in receipts : x.generation = y.generation /\ x.seq # y.seq => ~Overlap(x, y)

(* For a batch that was ever begun, the only thing that ends it is a receipt in the sink. *)
ReceiptMatchesBatch ==
  PURGES \/ \A s \in InState(batches, {"delivered", "rejected", "skipped"}) : batches[s].attempts > 0 =>
              \E x \in ReceiptsOf(generation, s) :
                /\ <<x.start, x.end>> = <<batches[s].start, batches[s].end>>
                /\ VERDICT_STATE[x.verdict] = State(s)

Effects(g, p) == rows[g][p] + letters[g][p]

(* Each receipt's positions are in the target or the dead letters exactly once, void ones nowhere; nothing else is. *)
SumIdentity ==
  /\ \A x \in receipts \ unplaced : \A p \in Span(x) : Effects(x.generation, p) = IF x.verdict = "void" THEN 0 ELSE 1
  /\ PURGES \/ \A g \in Generations : \A p \in Positions :
       Effects(g, p) > 0 => \E x \in receipts : x.generation = g /\ p \in Span(x)

AtMostOneVerdictPerBatch == \A x, y \in receipts : <<x.generation, x.seq>> = <<y.generation, y.seq>> => x = y

NeverDeliveredAndDeadLettered ==
  \A g \in Generations : \A p \in Positions : ~(rows[g][p] > 0 /\ letters[g][p] > 0)

PartitionOrderKept ==
  PINNED => \A x \in receipts : x.generation = generation => \A s \in 0 .. (x.seq - 1) :
    ReceiptsOf(generation, s) # {} \/ (s \in DOMAIN batches /\ State(s) \in {"skipped", "superseded"})

-----------------------------------------------------------------------------
(* Epochs *)

(* A fence is a barrier: when it has returned, no transaction of an older epoch commits any more. *)
NoCommitByStaleEpoch == ~stale_commit

(* ... so the receipts read behind it are final: until the holder begins something itself, none is news to it, *)
ReceiptsReadAreFinal ==
  \A r \in RUNS : Holds(r) /\ runs[r].fresh => \A x \in receipts : x.generation = generation => Is(x.seq, RESOLVED)

(* ... what a rewind has superseded never has an effect later, *)
NoCommitByEndedGeneration == [][\A x \in receipts' \ receipts : x.generation >= generation]_vars

(* ... a rewind's generation finds no receipts of its own, *)
GenerationIsNew ==
  [][generation' # generation /\ acts' # acts => \A x \in receipts : x.generation # generation']_vars

(* ... and once the holder has reconciled, no attempt but its own is open. *)
OpenAttemptsAreTheHolders == \A r \in RUNS : Holds(r) => \A s \in in_flight : batches[s].epoch = epoch

-----------------------------------------------------------------------------
(* Phases *)

DrainCompleteness == phase = "stopped" => in_flight = {}

NoPlanAfterDrain ==
  [][Ordinary /\ phase # "running" => \A s \in DOMAIN batches' \ DOMAIN batches : StateAfter(s) # "planned"]_vars

DrainMeansNoNewSending ==
  [][Ordinary /\ phase # "running" => \A s \in blocking : StateAfter(s) \in {"in_flight", "sent"} => State(s) = StateAfter(s)]_vars

ForceStopAbandonsAllInFlight ==
  [][phase # "stopped" /\ phase' = "stopped" /\ restores' = restores
       => InState(batches', {"in_flight"}) = {} /\ committed' = committed]_vars

-----------------------------------------------------------------------------
(* End to end *)

LetGo(p) ==
  \/ \E x \in receipts : x.generation = generation /\ x.verdict = "void" /\ p \in Span(x)
  \/ \E s \in InState(batches, {"skipped"}) : batches[s].attempts = 0 /\ p \in Span(batches[s])
  \/ p \in Covered({"sent"})

(* What the checkpoint has passed is in the target or in the dead letters, or was let go by a person or by policy. *)
NothingLost == \A p \in base .. (committed - 1) : Effects(generation, p) > 0 \/ LetGo(p)

(* ... as is, where nobody skips, what lies before the generation's beginning, thanks to one before it; *)
NothingLeftBehind ==
  "skip" \in ACTS \/ DELIVERY = "at_most_once" \/
    \A p \in 0 .. (base - 1) : \E g \in 1 .. (generation - 1) :
      Effects(g, p) > 0 \/ \E x \in receipts : x.generation = g /\ x.verdict = "void" /\ p \in Span(x)

(* ... which a run that has been admitted and has not begun anything can rely on even where the sink was set back: either the
   loss was told, and no run is admitted, or there is none. *)
SinkLossIsTold ==
  \A r \in RUNS : Holds(r) /\ runs[r].fresh =>
    \A p \in base .. (committed - 1) : Effects(generation, p) > 0 \/ LetGo(p)

(* ... and no run ends as done where the source had given out positions below those that were read before it began, unless
   a person has answered for that. *)
LowerPositionsAreTold == ~silent

(* ... and no position has two effects within a generation. *)
NothingDoubled == \A g \in Generations : \A p \in Positions : Effects(g, p) <= 1

-----------------------------------------------------------------------------
(* Liveness: only so much goes wrong (MAX_FAULTS), and what can go on does in the end: runs, lanes, and people who
   release what is held and resume what is drained. Every such step uses up something, a batch, a lane, an act, so that
   "something goes on" is enough: no fairness between one step and another is asked for. *)
Costless == faults' = faults

MachinesGoOn ==
  \/ \E r \in RUNS : Costless /\ (RunStarts(r) \/ RunWorks(r) \/ Stale(r))
  \/ \E l \in lanes : Costless /\ LaneStep(l)
PeopleGoOn == \E r \in RUNS : ReleaseHeld(r) \/ Stop(r) \/ Resume(r)

Fairness == WF_vars(MachinesGoOn) /\ WF_vars(PeopleGoOn)

LiveSpec == Spec /\ Fairness

(* `[]<>P` says that P always becomes true again: whatever breaks it leads to P in the end. *)

(* No attempt stays open, and in the end everything has its verdict. *)
NoBatchLeftBehind == []<>(in_flight = {}) /\ <>[](committed = SOURCE_END)

(* Resuming does not excuse it: what was in flight when the drain began ends. *)
EventualDrain == phase = "draining" ~> in_flight = {}

HeldBatchEventuallyReleased == []<>(InState(batches, {"held"}) = {})

(* The watermark of cancelled work goes, and only with the work begun again or resolved (CancellationWatermarkBlocks). *)
CancelledWorkCanFinish == []<>(Cancelled(batches) = {})

-----------------------------------------------------------------------------
(* Guards: for each property, that the model reaches what it speaks of. *)

BelowAnAck(s) == \E o \in pending_acks : batches[o].start >= batches[s].end
Started(l) == l.pc # "submitted"
AliveAndStale == {l \in lanes : l.epoch < barrier}
TwoLanes(P(_, _)) == \E l, o \in lanes : l # o /\ SameBatch(l, o) /\ P(l, o)
Different(l, o) == Head(l.tasks).instruction # Head(o.tasks).instruction
Racing(l, o) == Started(l) /\ l.generation = generation
HolderDied == owner # None /\ Dead(owner)

Reached(i, name, situation) ==
  IF name \in GUARDS /\ TLCGet(i) = 0 /\ situation THEN TLCSet(i, 1) /\ PrintT(<<"reached", name>>) ELSE TRUE

NoteGuards ==
  /\ Reached(1, "CheckpointNeverAheadOfTerminalizedPrefix", pending_acks # {})
  /\ Reached(2, "CheckpointOrderingInvariant", \E s \in blocking : batches[s].attempts > 0 /\ BelowAnAck(s))
  /\ Reached(3, "UnresolvedWorkNotCommittedPast", \E s \in in_flight : BelowAnAck(s))
  /\ Reached(4, "PlannedWorkVisibleToCheckpoint",
             \E s \in InState(batches, {"planned"}) : batches[s].attempts = 0 /\ BelowAnAck(s))
  /\ Reached(5, "CommittedNeverAheadOfPlanned", base < committed /\ committed = planned_end)
  /\ Reached(6, "CommittedMonotonic", base < committed /\ epoch > 1 /\ blocking # {})
  /\ Reached(7, "FailureTerminalizationPreservesCheckpoint",
             \E s \in InState(batches, {"planned"}) : batches[s].attempts > 0 /\ BelowAnAck(s))
  /\ Reached(8, "HeldTransitionsDoNotCommit", \E s \in InState(batches, {"held"}) : BelowAnAck(s))
  /\ Reached(9, "CancellationWatermarkBlocks",
             \E r \in RUNS : Holds(r) /\ runs[r].fresh /\ \E s \in Cancelled(batches) : BelowAnAck(s))
  /\ Reached(10, "QuiescenceHasNoSilentStrandedWork", planned_end = SOURCE_END /\ blocking = {} /\ lanes = {})
  /\ Reached(11, "NoDoubleComplete",
             \E l \in lanes : l.generation = generation /\ Is(Head(l.tasks).seq, RESOLVED))
  /\ Reached(12, "RangesTileTheSource", Gaps # {})
  /\ Reached(13, "ReceiptMatchesBatch",
             \E s \in blocking : batches[s].attempts > 0 /\ ReceiptsOf(generation, s) # {})
  /\ Reached(14, "SumIdentity", \E x \in receipts \ unplaced : x.verdict = "rejected")
  /\ Reached(15, "AtMostOneVerdictPerBatch", TwoLanes(Different))
  /\ Reached(16, "NeverDeliveredAndDeadLettered",
             \E l \in lanes : Head(l.tasks).instruction = "reject"
                              /\ \E x \in ReceiptsOf(l.generation, Head(l.tasks).seq) : x.verdict = "delivered")
  /\ Reached(17, "PartitionOrderKept",
             PINNED /\ \E l, o \in lanes : l.generation = generation /\ o.generation = generation
                                           /\ Head(l.tasks).seq < Head(o.tasks).seq)
  /\ Reached(18, "NoCommitByStaleEpoch", \E l \in AliveAndStale : FENCE = "postgres" \/ Started(l))
  /\ Reached(19, "ReceiptsReadAreFinal",
             \E l \in AliveAndStale : l.generation = generation /\ \E r \in RUNS : Holds(r) /\ runs[r].fresh)
  /\ Reached(20, "NoCommitByEndedGeneration", \E l \in lanes : l.generation < generation /\ Started(l))
  /\ Reached(21, "OpenAttemptsAreTheHolders", \E r \in RUNS : runs[r].pc = "ready" /\ ~LedgerOk(r) /\ in_flight # {})
  /\ Reached(22, "DrainCompleteness", phase = "draining" /\ in_flight # {})
  /\ Reached(23, "NoPlanAfterDrain", phase # "running" /\ planned_end < SOURCE_END /\ \E r \in RUNS : Holds(r))
  /\ Reached(24, "DrainMeansNoNewSending", phase # "running" /\ Candidates # {} /\ \E r \in RUNS : Holds(r))
  /\ Reached(25, "ForceStopAbandonsAllInFlight",
             phase = "stopped" /\ \E s \in blocking : batches[s].attempts > 0 /\ lanes # {})
  /\ Reached(26, "NothingLost", committed = SOURCE_END /\ epoch > 1)
  /\ Reached(27, "NothingDoubled", TwoLanes(Racing))
  /\ Reached(28, "NoBatchLeftBehind", in_flight # {} /\ HolderDied)
  /\ Reached(29, "EventualDrain", phase = "draining" /\ in_flight # {} /\ HolderDied)
  /\ Reached(30, "HeldBatchEventuallyReleased", InState(batches, {"held"}) # {} /\ HolderDied)
  /\ Reached(31, "CancelledWorkCanFinish", Cancelled(batches) # {} /\ HolderDied)
  /\ Reached(32, "GenerationIsNew", \E x \in receipts : x.generation > generation)

  /\ Reached(33, "NothingLeftBehind", \E x \in receipts : x.generation > generation /\ x.start > committed)
  /\ Reached(34, "SinkLossIsTold", SetBack /\ \E p \in base .. (committed - 1) : Effects(generation, p) = 0)
  /\ Reached(35, "LowerPositionsAreTold", \E r \in RUNS : Holds(r) /\ runs[r].low > dealt_with)

ASSUME \A i \in 1 .. 35 : TLCSet(i, 0)

Symmetry == Permutations(RUNS)

=============================================================================
