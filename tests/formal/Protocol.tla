------------------------------ MODULE Protocol ------------------------------
(***************************************************************************)
(* The whole protocol: a ledger that plans ranges of a source and moves a   *)
(* checkpoint, runs that hold its lease one after the other, lanes that     *)
(* deliver batches and claim a receipt in the sink, and everything that can *)
(* go wrong in between: crashes at every step, a lease that is taken over   *)
(* while its holder lives, lanes that outlive their run, a lane that is     *)
(* executed twice, reports that are lost or wrong, people who hold, skip,   *)
(* cancel, drain and rewind, a ledger restored from an old backup, a sink   *)
(* restored from one, a source that gives out positions below the           *)
(* checkpoint.                                                              *)
(*                                                                          *)
(* Names are the code's: `committed`, `in_flight`, `pending_acks`,          *)
(* `planned_end`, `next_seq`, `phase`, `generation`, `cancelled`, `epoch`   *)
(* are fields of core/partition.py, core/batch.py and the lease row. There  *)
(* is one source partition; its positions are 0 .. SOURCE_END - 1.          *)
(*                                                                          *)
(* Four kinds of sink, by how an older epoch is shut out (FENCE):           *)
(*   postgres  a transaction holds the fence row FOR SHARE to its end       *)
(*   kafka     one transactional id; its init aborts whoever used it before *)
(*   table     staged files, then one optimistic commit on a checked handle *)
(*   marker    nobody is shut out: a put-if-absent marker arbitrates        *)
(*                                                                          *)
(* What time does (a lease that expires, a wave that is given up) may       *)
(* happen at any moment here: time decides only who may take over.          *)
(*                                                                          *)
(* Each rule of the protocol that something depends on can be switched off  *)
(* by MUTANT; tlc.py runs every mutant and demands that a property fails.   *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  FENCE,           \* "postgres", "kafka", "table" or "marker"
  DELIVERY,        \* "exactly_once" or "at_most_once"
  PINNED,          \* TRUE: batches take effect in seq order, one lane holds them all
  RUNS,            \* the processes that compete for the lease
  ONE_OWNER,       \* TRUE: they are tries of the same DAG run, and share its owner name
  SOURCE_END,      \* the source holds positions 0 .. SOURCE_END - 1
  LENGTHS,         \* how many positions a planned batch may have
  EXHAUSTED,       \* what may follow a reported failure: subset of {"retry", "reject", "hold"}
  ACTS,            \* what people may do, by name
  NEIGHBOUR,       \* TRUE: another partition's lane writes to the kafka receipts topic too
  PURGES,          \* TRUE: receipts below the checkpoint are removed from the sink
  TABLE_EXISTS,    \* table: whether there is one at first
  PLANS,           \* how many batches one command may plan
  MAX_EPOCH, MAX_WAVES, MAX_TWINS, MAX_GENERATION, MAX_ACTS, MAX_RESTORES,
  MAX_SINK_RESTORES, \* how often the sink is set back to an older copy
  MAX_LOWER,       \* how often the source gives out positions below those that were read
  MAX_FAULTS,      \* how much goes wrong in all; UNBOUNDED (99) lets everything go wrong, and counts nothing
  MUTANT           \* the one rule that is switched off, or "none"

VARIABLES
  (* The ledger. One command is one step, for it is one transaction. *)
  epoch, owner,                                  \* the lease row
  phase, generation, base, committed, next_seq, planned_end,
  batches,                                       \* by seq; those of the current generation
  (* The sink *)
  fence,           \* postgres: the row; kafka: the highest epoch record; table: the epoch in its log
  fence_file,      \* table: the highest epoch among the fence files, which also work while there is no table
  table,           \* table: whether there is one
  receipts,
  unplaced,        \* marker: receipts whose file was not yet renamed to its place
  neighbour,       \* kafka: whether another partition's lane has a transaction open in the receipts topic
  hidden,          \* kafka: receipts beyond the last stable offset, since that transaction began before them
  stale_commit,    \* whether a lane has committed whose epoch was fenced off
  rows, letters,   \* how often each position is in the target, in the dead letters; by generation
  (* Processes *)
  runs, lanes,
  reports,         \* outcomes on their way from lanes to the run that waits for them
  (* For the bounds, and for the properties *)
  barrier,         \* the highest epoch whose fence has returned
  waves, twins, acts, faults,
  backup, restores,
  sink_copy, sink_restores,
  (* What the ledger remembers of the sink, to notice that it went back in time *)
  raised,          \* the newest epoch whose fence has returned
  asked,           \* the newest epoch that settled a verdict, and the batches whose receipts it settled
  (* A source that gives out positions below those that were read *)
  source_low,      \* how often it has done so: what its sequence, its largest key … would tell
  witness,         \* what the ledger noted of that at the last planning
  dealt_with,      \* up to where a person has answered the alarm
  silent           \* whether a run has ended as done although that had happened before it began

lease    == <<epoch, owner>>
work     == <<phase, generation, base, committed, next_seq, planned_end, batches>>
guard    == <<fence, fence_file, table>>
content  == <<receipts, unplaced, hidden, rows, letters, stale_commit>>
sink     == <<guard, content, neighbour>>
counters == <<waves, twins, acts>>
archives == <<backup, restores, sink_copy, sink_restores>>
standing == <<raised, asked>>
below    == <<source_low, witness, dealt_with, silent>>
copies   == <<archives, standing, below>>
vars     == <<lease, work, sink, runs, lanes, reports, barrier, counters, faults, copies>>

-----------------------------------------------------------------------------
(* Words *)

None       == "none"
UNBOUNDED  == 99
Positions  == 0 .. (SOURCE_END - 1)
Generations == 1 .. MAX_GENERATION

BLOCKING == {"planned", "in_flight", "held"}
RESOLVED == {"delivered", "rejected", "skipped", "sent"}

Max(a, b) == IF a > b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Highest(S) == IF S = {} THEN 0 ELSE CHOOSE x \in S : \A y \in S : x >= y
Span(x) == x.start .. (x.end - 1)
Overlap(x, y) == x.start < y.end /\ y.start < x.end

VERDICT == [deliver |-> "delivered", reject |-> "rejected", void |-> "void"]
VERDICT_STATE == [delivered |-> "delivered", rejected |-> "rejected", void |-> "skipped"]

InState(bs, states) == {s \in DOMAIN bs : bs[s].state \in states}

in_flight    == InState(batches, {"in_flight"})
blocking     == InState(batches, BLOCKING)
pending_acks == {s \in InState(batches, RESOLVED) : batches[s].end > committed}

Cancelled(bs) == {s \in DOMAIN bs : bs[s].cancelled}
BelowWatermark(bs, s) == \A c \in Cancelled(bs) : s < c

(* Where the checkpoint gets to from `from`: over the longest resolved prefix, cut at the cancellation watermark. *)
Advance(from, bs) ==
  LET resolved == {s \in InState(bs, RESOLVED) : BelowWatermark(bs, s)}
      reached == UNION {Span(bs[s]) : s \in resolved}
      seen(p) == CASE MUTANT = "acks_out_of_order" -> \E q \in reached : q >= p
                   [] MUTANT = "planned_work_not_counted" ->
                        \/ p \in reached
                        \/ /\ \E q \in reached : q >= p
                           /\ \A s \in InState(bs, {"in_flight", "held"}) : p \notin Span(bs[s])
                   [] MUTANT = "held_counts_as_resolved" ->
                        p \in reached \cup UNION {Span(bs[s]) : s \in InState(bs, {"held"})}
                   [] OTHER -> p \in reached
  IN CHOOSE e \in from .. SOURCE_END : (\A p \in from .. (e - 1) : seen(p)) /\ (e = SOURCE_END \/ ~seen(e))

(* What lies below planned_end and belongs to no batch: an imported receipt left it uncovered. *)
Gaps == {p \in committed .. (planned_end - 1) : \A s \in DOMAIN batches :
           batches[s].state = "superseded" \/ p \notin Span(batches[s])}

Fresh(start, end) == [state |-> "planned", start |-> start, end |-> end, attempts |-> 0, epoch |-> 0,
                      instruction |-> "deliver", cancelled |-> FALSE]
(* `attempts` is the code's count only so far as it matters: 0 for a batch that was never begun; for an open attempt the
   number of its wave, which no other attempt has; 1 for every other batch. *)
Ended(b) == [b EXCEPT !.epoch = 0, !.attempts = IF b.attempts = 0 THEN 0 ELSE 1]
Back(b) == [Ended(b) EXCEPT !.state = "planned"]
Done(b, state) == [Ended(b) EXCEPT !.state = state, !.instruction = "deliver", !.cancelled = FALSE]

ReceiptsOf(g, s) == {x \in receipts : x.generation = g /\ x.seq = s}

Idle == [pc |-> "idle", epoch |-> 0, found |-> {}, fresh |-> FALSE, low |-> 0]
OwnerOf(r) == IF ONE_OWNER THEN "dag_run" ELSE r
Dead(who) == \A r \in RUNS : OwnerOf(r) = who => runs[r].pc = "idle"

(* Every ledger command checks this under the lock of the lease row, or raises StaleEpochError. *)
LedgerOk(r) == IF MUTANT = "ledger_takes_stale_epochs" THEN runs[r].epoch <= epoch
               ELSE runs[r].epoch = epoch /\ owner = OwnerOf(r)

Cost(n) == IF MAX_FAULTS = UNBOUNDED THEN faults' = faults ELSE faults + n <= MAX_FAULTS /\ faults' = faults + n
Free == faults' = faults

Init ==
  /\ epoch = 0 /\ owner = None
  /\ phase = "running" /\ generation = 1 /\ base = 0 /\ committed = 0 /\ next_seq = 0 /\ planned_end = 0
  /\ batches = << >>
  /\ fence = 0 /\ fence_file = 0 /\ table = TABLE_EXISTS
  /\ receipts = {} /\ unplaced = {} /\ neighbour = FALSE /\ hidden = {}
  /\ rows = [g \in Generations |-> [p \in Positions |-> 0]] /\ letters = rows /\ stale_commit = FALSE
  /\ runs = [r \in RUNS |-> Idle] /\ lanes = {} /\ reports = {}
  /\ barrier = 0 /\ waves = 0 /\ twins = 0 /\ acts = 0 /\ faults = 0
  /\ backup = {} /\ restores = 0 /\ sink_copy = {} /\ sink_restores = 0
  /\ raised = 0 /\ asked = [epoch |-> 0, batches |-> {}]
  /\ source_low = 0 /\ witness = 0 /\ dealt_with = 0 /\ silent = FALSE

-----------------------------------------------------------------------------
(* The sink's content *)

(* Adds the receipts' effects to a count per position; counts above 2 say nothing new. *)
Counted(counts, new, verdict) ==
  [g \in Generations |-> [p \in Positions |->
     LET n == Cardinality({x \in new : x.verdict = verdict /\ x.generation = g /\ p \in Span(x)})
     IN IF counts[g][p] + n > 2 THEN 2 ELSE counts[g][p] + n]]

ReceiptFor(l, t) == [generation |-> l.generation, seq |-> t.seq, start |-> t.start, end |-> t.end,
                     verdict |-> VERDICT[t.instruction],
                     epoch |-> IF PURGES \/ MAX_RESTORES > 0 THEN l.epoch ELSE 0]   \* nothing else asks for it

(* Rows, dead letters and receipt become visible in one moment. *)
Commit(l, new) ==
  /\ receipts' = receipts \cup new
  /\ stale_commit' = (stale_commit \/ l.epoch < barrier)
  /\ rows' = Counted(rows, new, "delivered")
  /\ letters' = Counted(letters, new, "rejected")
  /\ hidden' = IF neighbour THEN hidden \cup new ELSE hidden
  /\ UNCHANGED unplaced

(* Marker: whoever believes a marker first puts its file in place, for its lane may have died before it could. *)
RollForward(believed) ==
  LET todo == IF MUTANT = "marker_believed_unplaced" THEN {} ELSE unplaced \cap believed IN
  /\ unplaced' = unplaced \ todo
  /\ rows' = Counted(rows, todo, "delivered")
  /\ letters' = Counted(letters, todo, "rejected")
  /\ UNCHANGED <<receipts, hidden, stale_commit>>

-----------------------------------------------------------------------------
(* Reports: what a lane says of an attempt. `failed` means unknown; any report may be lost. One that carries a receipt
   tells the run nothing that the sink would not, so such reports are not modelled one by one: `Settle` may hear of a
   receipt at any time after its commit, or never. *)

Says(l, t, outcome) ==
  [epoch |-> l.epoch, generation |-> l.generation, seq |-> t.seq, attempt |-> t.attempt, outcome |-> outcome]

(* A report that no run waits for, or of an attempt that is not open, would be ignored by `settle`. *)
Heard(m) ==
  /\ m.generation = generation /\ m.seq \in DOMAIN batches
  /\ batches[m.seq].state \in {"in_flight", "sent"}
  /\ batches[m.seq].attempts = m.attempt /\ batches[m.seq].epoch = m.epoch
  /\ \E r \in RUNS : runs[r].pc = "ready" /\ runs[r].epoch = m.epoch

Tell(said, cost) ==
  \/ reports' = reports \cup {m \in said : Heard(m)} /\ Cost(cost)
  \/ UNCHANGED reports /\ Cost(1)

-----------------------------------------------------------------------------
(* Lanes: one Spark task each, working off a list of batches. They know their epoch and nothing of the ledger. *)

Others(l) == lanes \ {l}
Becomes(l, m) == lanes' = Others(l) \cup {m}
Ends(l) == lanes' = Others(l)
(* On to the lane's next batch, with its connection as it is. *)
GoesOn(l, pc) == lanes' = Others(l) \cup
                   IF Len(l.tasks) = 1 THEN {} ELSE {[l EXCEPT !.tasks = Tail(@), !.pc = pc]}

(* Those of a lane's batches that have no receipt among `found`. *)
RECURSIVE Waiting(_, _, _)
Waiting(tasks, g, found) ==
  IF tasks = << >> THEN << >>
  ELSE (IF \E x \in found : x.generation = g /\ x.seq = Head(tasks).seq THEN << >> ELSE <<Head(tasks)>>)
       \o Waiting(Tail(tasks), g, found)

(* A newer epoch holds the fence: the lane ends, and so does its wave; nobody reports. *)
Fenced(l) == Ends(l) /\ UNCHANGED reports /\ Free

(* The batch has a receipt already: no effect, and the report carries that receipt. *)
Found(l, pc) == GoesOn(l, pc) /\ UNCHANGED reports /\ Free

(* It failed, or so it seems: in a pinned pipeline the rest of the lane is not attempted. *)
Failure(l) ==
  {Says(l, l.tasks[i], IF i = 1 THEN "failed" ELSE "not_attempted") : i \in 1 .. Len(l.tasks)}

(* Anything that goes wrong before the commit: the transaction is gone. With its report lost, the lane just died. *)
LaneFails(l) ==
  /\ IF MUTANT = "lane_goes_on_after_failure" THEN GoesOn(l, "submitted") ELSE Ends(l)
  /\ Tell(Failure(l), 1)
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* The commit happened; whether the lane gets to know is another matter. *)
Committed(l, pc) ==
  \/ GoesOn(l, pc) /\ UNCHANGED reports /\ Free
  \/ Ends(l) /\ Tell(Failure(l), 1)

SameBatch(l, o) == o.generation = l.generation /\ Head(o.tasks).seq = Head(l.tasks).seq

(* postgres: one statement locks the fence row FOR SHARE, compares the epoch and inserts the receipt. Another
   transaction's uncommitted receipt of the batch makes it wait. *)
PostgresClaim(l) ==
  /\ FENCE = "postgres" /\ l.pc = "submitted"
  /\ LET t == Head(l.tasks)
         refused == IF MUTANT = "epoch_compared_the_wrong_way" THEN fence < l.epoch ELSE fence # l.epoch
     IN CASE refused -> Fenced(l)
          [] ~refused /\ ReceiptsOf(l.generation, t.seq) # {} /\ MUTANT # "last_claim_wins" -> Found(l, "submitted")
          [] OTHER -> /\ \A o \in Others(l) : ~(o.pc = "claimed" /\ SameBatch(l, o)) \/ MUTANT = "last_claim_wins"
                      /\ Becomes(l, [l EXCEPT !.pc = "claimed"])
                      /\ Free /\ UNCHANGED reports
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* Rows and dead letters follow in the same transaction, unseen until it commits: to die after any of its statements is
   to die at "claimed". *)
PostgresCommit(l) ==
  /\ FENCE = "postgres" /\ l.pc = "claimed"
  /\ LET x == ReceiptFor(l, Head(l.tasks)) IN
     IF MUTANT = "receipt_after_commit"
     THEN /\ Becomes(l, [l EXCEPT !.pc = "unreceipted"])
          /\ rows' = Counted(rows, {x}, "delivered") /\ letters' = Counted(letters, {x}, "rejected")
          /\ Free /\ UNCHANGED <<receipts, unplaced, hidden, stale_commit, reports>>
     ELSE Commit(l, {x}) /\ Committed(l, "submitted")
  /\ UNCHANGED <<lease, work, guard, neighbour, runs, barrier, counters, copies>>

(* MUTANT receipt_after_commit only: the receipt follows in a transaction of its own. *)
PostgresReceipt(l) ==
  /\ l.pc = "unreceipted"
  /\ receipts' = receipts \cup {ReceiptFor(l, Head(l.tasks))}
  /\ Committed(l, "submitted")
  /\ UNCHANGED <<lease, work, guard, neighbour, unplaced, hidden, rows, letters, stale_commit, runs, barrier, counters, copies>>

(* kafka: init of the transactional id ends whoever used it before: a transaction that he has open is aborted, his next
   call fails. So one lane at a time is beyond "submitted". *)
Initialised(ls) == {l \in ls : l.pc # "submitted"}

KafkaInit(l) ==
  /\ FENCE = "kafka" /\ l.pc = "submitted"
  /\ lanes' = (Others(l) \ Initialised(lanes)) \cup {[l EXCEPT !.pc = "initialised"]}
  /\ Tell(UNION {Failure(o) : o \in Initialised(lanes)}, 0)
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* One pass over the receipts topic, to an end that the last stable offset has reached: a newer epoch record ends the
   lane, and what has a receipt is done. *)
KafkaRead(l) ==
  /\ FENCE = "kafka" /\ l.pc = "initialised"
  /\ hidden = {} \/ MUTANT = "kafka_reads_to_the_stable_offset_only"
  /\ LET waiting == Waiting(l.tasks, l.generation, receipts \ hidden) IN
     IF fence > l.epoch /\ MUTANT # "kafka_epoch_not_read_again" THEN Fenced(l)
     ELSE (IF waiting = << >> THEN Ends(l) ELSE Becomes(l, [l EXCEPT !.pc = "ready", !.tasks = waiting]))
          /\ Free /\ UNCHANGED reports
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* A transaction of rows, dead letters and receipt; unseen until it commits. *)
KafkaCommit(l) ==
  /\ FENCE = "kafka" /\ l.pc = "ready"
  /\ Commit(l, {ReceiptFor(l, Head(l.tasks))}) /\ Committed(l, "ready")
  /\ UNCHANGED <<lease, work, guard, neighbour, runs, barrier, counters, copies>>

(* Another partition's lane, in the same receipts topic: it holds the last stable offset back while it is open. *)
KafkaNeighbour ==
  /\ FENCE = "kafka" /\ NEIGHBOUR
  /\ neighbour' = ~neighbour
  /\ hidden' = IF neighbour THEN {} ELSE hidden
  /\ Free
  /\ UNCHANGED <<lease, work, guard, receipts, unplaced, rows, letters, stale_commit, runs, lanes, reports, barrier, counters, copies>>

(* table: lanes stage files; then the process that called Spark commits for them, as the very next version of one
   handle. Once anybody else has committed, that version is taken: who has looked must look again. *)
NewestEpoch == IF table THEN Max(fence, fence_file) ELSE fence_file
Again == IF MUTANT \in {"table_epoch_not_on_the_committing_handle", "table_commit_is_retried"} THEN "moved" ELSE "staged"
Moved(ls) == {IF l.pc = "looked" THEN [l EXCEPT !.pc = Again] ELSE l : l \in ls}
MovedRuns == [r \in RUNS |-> IF runs[r].pc = "looked" THEN [runs[r] EXCEPT !.pc = "filed"] ELSE runs[r]]

(* A fresh handle: what has a receipt on it is done; another epoch on it and among the fence files ends the lane. A newer
   one has taken over; an older one shows that the table was set back since the lane's own fence was raised. *)
TableLook(l) ==
  /\ FENCE = "table" /\ l.pc \in {"staged", "moved"}
  /\ LET waiting == IF MUTANT = "table_receipts_not_looked_up" THEN l.tasks ELSE Waiting(l.tasks, l.generation, receipts)
         other == IF MUTANT \in {"table_set_back_is_committed_to", "table_without_fence_file"} THEN NewestEpoch > l.epoch
                  ELSE NewestEpoch # l.epoch
         checked == ~(MUTANT = "table_epoch_not_on_the_committing_handle" /\ l.pc = "moved")
     IN CASE waiting = << >> -> Ends(l) /\ Free /\ UNCHANGED reports
          [] waiting # << >> /\ other /\ checked -> Fenced(l)
          [] OTHER -> /\ Becomes(l, IF table THEN [l EXCEPT !.pc = "looked", !.tasks = waiting]
                                    ELSE [l EXCEPT !.pc = "creating"])
                      /\ Free /\ UNCHANGED reports
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* A batch that cannot be staged is reported; those before it go on to the commit. *)
TableStageFails(l) ==
  /\ FENCE = "table" /\ l.pc = "staged"
  /\ \E n \in 1 .. (Len(l.tasks) - 1) :
       /\ Becomes(l, [l EXCEPT !.tasks = SubSeq(@, 1, n)])
       /\ Tell(Failure([l EXCEPT !.tasks = SubSeq(@, n + 1, Len(@))]), 1)
  /\ UNCHANGED <<lease, work, sink, runs, barrier, counters, copies>>

(* Creates it, empty, unless somebody has; whoever is fenced meanwhile leaves an empty table at worst. *)
TableCreate(l) ==
  /\ FENCE = "table" /\ l.pc = "creating"
  /\ table' = TRUE
  /\ fence' = IF table THEN fence ELSE l.epoch
  /\ Becomes(l, [l EXCEPT !.pc = "staged"])
  /\ Free /\ UNCHANGED <<lease, work, fence_file, content, neighbour, runs, reports, barrier, counters, copies>>

TableCommit(l) ==
  /\ FENCE = "table"
  /\ l.pc = "looked" \/ (l.pc = "moved" /\ MUTANT = "table_commit_is_retried")
  /\ Commit(l, {ReceiptFor(l, l.tasks[i]) : i \in 1 .. Len(l.tasks)})
  /\ fence' = l.epoch
  /\ lanes' = Moved(Others(l)) /\ runs' = MovedRuns
  /\ \/ UNCHANGED reports /\ Free
     \/ Tell({Says(l, l.tasks[i], "failed") : i \in 1 .. Len(l.tasks)}, 1)
  /\ UNCHANGED <<lease, work, fence_file, table, neighbour, barrier, counters, copies>>

(* marker: the file is written aside; creating the marker is commit and receipt; then the file moves to its place. *)
MarkerPut(l) ==
  /\ FENCE = "marker" /\ l.pc = "submitted"
  /\ LET there == ReceiptsOf(l.generation, Head(l.tasks).seq)
         x == ReceiptFor(l, Head(l.tasks))
     IN IF there # {} /\ MUTANT # "marker_overwrites"
        THEN RollForward(there) /\ Found(l, "submitted")
        ELSE /\ receipts' = (receipts \ there) \cup {x} /\ unplaced' = unplaced \cup {x}
             /\ Becomes(l, [l EXCEPT !.pc = "marked"])
             /\ Free /\ UNCHANGED <<reports, hidden, rows, letters, stale_commit>>
  /\ UNCHANGED <<lease, work, guard, neighbour, runs, barrier, counters, copies>>

MarkerPlace(l) ==
  /\ FENCE = "marker" /\ l.pc = "marked"
  /\ LET x == ReceiptFor(l, Head(l.tasks)) IN
     /\ unplaced' = unplaced \ {x}
     /\ rows' = Counted(rows, {x} \cap unplaced, "delivered")
     /\ letters' = Counted(letters, {x} \cap unplaced, "rejected")
  /\ Committed(l, "submitted")
  /\ UNCHANGED <<lease, work, guard, receipts, hidden, stale_commit, neighbour, runs, barrier, counters, copies>>

(* A twin is told from its elder only by who moves first. *)
Elder(l) == l.copy = 2 => [l EXCEPT !.copy = 1] \notin lanes

LaneStep(l) ==
  \/ PostgresClaim(l) \/ PostgresCommit(l) \/ PostgresReceipt(l)
  \/ KafkaInit(l) \/ KafkaRead(l) \/ KafkaCommit(l)
  \/ TableLook(l) \/ TableCreate(l) \/ TableCommit(l)
  \/ MarkerPut(l) \/ MarkerPlace(l)

-----------------------------------------------------------------------------
(* A run begins: lease, fence, receipts, reconcile; in this order, and nothing is begun before the end of it. *)

Goes(r, pc) == runs' = [runs EXCEPT ![r].pc = pc]
Quits(r) == runs' = [runs EXCEPT ![r] = Idle]

SinkEpoch == CASE FENCE = "table" -> NewestEpoch
               [] FENCE = "marker" -> Highest({x.epoch : x \in receipts})
               [] OTHER -> fence

(* The sink is asked for its fence before the lease is taken; the two moments only matter where the ledger may be
   restored in between. *)
Admit(r) ==
  /\ MAX_RESTORES > 0 /\ runs[r].pc = "idle"
  /\ runs' = [runs EXCEPT ![r] = [Idle EXCEPT !.pc = "admitted", !.epoch = SinkEpoch]]
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, barrier, counters, copies>>

(* The sink was set back: its fence stands below an epoch that was raised there, or a receipt of the newest epoch that settled
   any is gone. An older state of the same epoch lacks its last receipts, an older one still lacks the epoch itself; so it is
   enough to ask for the newest ones. A person has to say what is to be done; until then no run is admitted. *)
SetBack ==
  \/ SinkEpoch < raised /\ MUTANT # "sink_fence_not_compared"
  \/ MUTANT # "settled_receipts_not_asked_for" /\ \E b \in asked.batches : ReceiptsOf(b[1], b[2]) = {}

(* The lease is free, our own, of a dead run, or it has expired under a run that lives. *)
Acquire(r) ==
  /\ runs[r].pc = IF MAX_RESTORES > 0 THEN "admitted" ELSE "idle"
  /\ MAX_SINK_RESTORES > 0 => ~SetBack
  /\ LET at_least == IF MAX_RESTORES > 0 THEN runs[r].epoch ELSE SinkEpoch
         new == (IF MUTANT = "epoch_of_the_ledger_alone" THEN epoch ELSE Max(epoch, at_least)) + 1
     IN /\ new <= MAX_EPOCH
        /\ epoch' = new
        /\ runs' = [runs EXCEPT ![r] = [Idle EXCEPT !.pc = "acquired", !.epoch = new, !.low = source_low]]
  /\ owner' = OwnerOf(r)
  /\ Cost(IF owner \in {None, OwnerOf(r)} \/ Dead(owner) THEN 0 ELSE 1)
  /\ reports' = {}                             \* whoever waited for them has lost the lease
  /\ UNCHANGED <<work, sink, lanes, barrier, counters, copies>>

(* A later task of the same DAG run carries the epoch on, unless attempts of it are open. It was handed the epoch by one that
   had reconciled; that this one still lives takes nothing away, since it may die right after. *)
Attach(r) ==
  /\ ONE_OWNER /\ runs[r].pc = "idle" /\ owner = OwnerOf(r)
  /\ \A s \in in_flight : batches[s].epoch # epoch
  /\ runs' = [runs EXCEPT ![r] = [Idle EXCEPT !.pc = "ready", !.epoch = epoch, !.low = source_low]]
  /\ \E o \in RUNS : runs[o].epoch = epoch /\ runs[o].pc = "ready"
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, barrier, counters, copies>>

ToFence == IF MUTANT = "receipts_read_before_the_fence" THEN "early" ELSE "acquired"
FenceReturns(r) == Goes(r, "fenced") /\ barrier' = Max(barrier, runs[r].epoch)

(* postgres: the UPDATE waits for every transaction that holds the row FOR SHARE. *)
PostgresFence(r) ==
  /\ FENCE = "postgres" /\ runs[r].pc = ToFence
  /\ IF fence > runs[r].epoch
     THEN Quits(r) /\ UNCHANGED <<fence, barrier>>
     ELSE /\ \/ fence = runs[r].epoch
             \/ \A l \in lanes : l.pc # "claimed"
             \/ MUTANT = "fence_does_not_wait"
          /\ fence' = runs[r].epoch
          /\ FenceReturns(r)
  /\ Free /\ UNCHANGED <<lease, work, fence_file, table, content, neighbour, lanes, reports, counters, copies>>

(* ... and after a moment ends the sessions of older epochs, which rolls them back. *)
PostgresEndOlder(r) ==
  /\ FENCE = "postgres" /\ runs[r].pc = ToFence
  /\ \E l \in lanes : l.pc = "claimed" /\ l.epoch < runs[r].epoch /\ Ends(l)
  /\ Free /\ UNCHANGED <<lease, work, sink, runs, reports, barrier, counters, copies>>

(* kafka: refuse if the topic holds a newer epoch; write ours; init every id. Between the first two a newer epoch may have
   written its record, so it is the highest record that counts, not the newest: each epoch's has a key of its own, or
   compaction would leave the newest only. *)
KafkaFenceCheck(r) ==
  /\ FENCE = "kafka" /\ runs[r].pc = ToFence
  /\ IF fence > runs[r].epoch THEN Quits(r) ELSE Goes(r, "refused_none")
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, barrier, counters, copies>>

KafkaFenceWrite(r) ==
  /\ FENCE = "kafka"
  /\ runs[r].pc = IF MUTANT = "kafka_ids_before_the_record" THEN "ids" ELSE "refused_none"
  /\ fence' = IF MUTANT = "kafka_newest_record_counts" THEN runs[r].epoch ELSE Max(fence, runs[r].epoch)
  /\ IF MUTANT = "kafka_ids_before_the_record" THEN FenceReturns(r) ELSE Goes(r, "record") /\ UNCHANGED barrier
  /\ Free /\ UNCHANGED <<lease, work, fence_file, table, content, neighbour, lanes, reports, counters, copies>>

KafkaFenceIds(r) ==
  /\ FENCE = "kafka"
  /\ runs[r].pc = IF MUTANT = "kafka_ids_before_the_record" THEN "refused_none" ELSE "record"
  /\ lanes' = lanes \ Initialised(lanes)
  /\ neighbour' = FALSE /\ hidden' = {}
  /\ IF MUTANT = "kafka_ids_before_the_record" THEN Goes(r, "ids") /\ UNCHANGED barrier ELSE FenceReturns(r)
  /\ Free /\ UNCHANGED <<lease, work, guard, receipts, unplaced, rows, letters, stale_commit, reports, counters, copies>>

(* table: first a fence file, for there may be no table to commit to; then a commit of the epoch. *)
TableFenceFile(r) ==
  /\ FENCE = "table" /\ runs[r].pc = ToFence
  /\ IF fence_file > runs[r].epoch
     THEN Quits(r) /\ UNCHANGED fence_file
     ELSE /\ fence_file' = IF MUTANT = "table_without_fence_file" THEN fence_file ELSE runs[r].epoch
          /\ Goes(r, "filed")
  /\ Free /\ UNCHANGED <<lease, work, fence, table, content, neighbour, lanes, reports, barrier, counters, copies>>

TableFenceLook(r) ==
  /\ FENCE = "table" /\ runs[r].pc = "filed"
  /\ CASE NewestEpoch > runs[r].epoch -> Quits(r) /\ UNCHANGED barrier
       [] NewestEpoch <= runs[r].epoch /\ (~table \/ fence = runs[r].epoch) -> FenceReturns(r)
       [] OTHER -> Goes(r, "looked") /\ UNCHANGED barrier
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, counters, copies>>

TableFenceCommit(r) ==
  /\ FENCE = "table" /\ runs[r].pc = "looked"
  /\ fence' = runs[r].epoch
  /\ lanes' = Moved(lanes) /\ runs' = MovedRuns
  /\ Free /\ UNCHANGED <<lease, work, fence_file, table, content, neighbour, reports, barrier, counters, copies>>

MarkerFence(r) ==
  /\ FENCE = "marker" /\ runs[r].pc = ToFence
  /\ FenceReturns(r)
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, counters, copies>>

(* Every receipt that is not below the checkpoint. *)
ReadNow == {x \in receipts : x.generation # generation \/ x.end > committed}

(* MUTANT receipts_read_before_the_fence only *)
ReadEarly(r) ==
  /\ MUTANT = "receipts_read_before_the_fence" /\ runs[r].pc = "acquired"
  /\ runs' = [runs EXCEPT ![r].found = ReadNow, ![r].pc = "early"]
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, barrier, counters, copies>>

(* Whether the ledger does not know the batch as the receipt has it. *)
Stranger(bs, x) == x.seq \notin DOMAIN bs \/ bs[x.seq].state = "superseded" \/ bs[x.seq].attempts = 0
                   \/ <<bs[x.seq].start, bs[x.seq].end>> # <<x.start, x.end>>

Acked(bs, known) ==
  [s \in DOMAIN bs |->
     LET mine == {x \in known : x.seq = s} IN
     IF mine = {} \/ bs[s].state \notin BLOCKING \cup {"sent"} THEN bs[s]
     ELSE Done(bs[s], VERDICT_STATE[(CHOOSE x \in mine : TRUE).verdict])]

(* The sink is right: what a receipt touches of our own unresolved batches is superseded. *)
RECURSIVE Imported(_, _)
Imported(bs, strange) ==
  IF strange = {} THEN bs
  ELSE LET x == CHOOSE y \in strange : \A z \in strange : y.seq <= z.seq
           mine == [s \in DOMAIN bs |->
                      IF bs[s].state \in BLOCKING /\ (s = x.seq \/ Overlap(bs[s], x)) THEN Done(bs[s], "superseded")
                      ELSE bs[s]]
           new == x.seq :> Done([Fresh(x.start, x.end) EXCEPT !.attempts = 1], VERDICT_STATE[x.verdict])
       IN Imported(new @@ mine, strange \ {x})

Ledgered(bs, strange) ==
  /\ batches' = bs
  /\ committed' = Advance(committed, bs)
  /\ next_seq' = Highest({next_seq} \cup {x.seq + 1 : x \in strange})
  /\ planned_end' = Highest({planned_end} \cup {x.end : x \in strange})
  /\ UNCHANGED <<phase, generation, base>>

(* The ledger's view of a generation, agreed with the receipts of that generation: take what has one, import strangers, put
   back what older epochs left open. *)
Settled(view, read) ==
  LET found == {x \in read : x.generation = view.generation}
      strange == IF MUTANT = "strangers_not_imported" THEN {} ELSE {x \in found : Stranger(view.batches, x)}
      acked == Acked(view.batches, {x \in found : ~Stranger(view.batches, x)})
      mine == Imported(acked, strange)
      bs == [s \in DOMAIN mine |->
          LET b == IF MUTANT = "watermark_cleared_on_takeover" THEN [mine[s] EXCEPT !.cancelled = FALSE] ELSE mine[s]
          IN IF b.state = "in_flight" /\ b.epoch < epoch /\ MUTANT # "open_attempts_left_at_takeover" THEN Back(b)
             ELSE IF b.state = "sent" /\ b.epoch < epoch THEN Ended(b)
             ELSE b]
  IN [view EXCEPT !.batches = bs,
                  !.committed = Advance(view.committed, bs),
                  !.next_seq = Highest({view.next_seq} \cup {x.seq + 1 : x \in strange}),
                  !.planned_end = Highest({view.planned_end} \cup {x.end : x \in strange})]

(* A restored ledger has forgotten a rewind whose receipts are there. It went neither beyond the first of them nor beyond what
   the generation before had resolved, so it is taken to have gone to the lower of the two. *)
RECURSIVE CaughtUp(_, _)
CaughtUp(view, read) ==
  LET newer == {x \in read : x.generation > view.generation} IN
  IF newer = {} \/ MUTANT = "forgotten_rewind_is_passed_over" THEN view
  ELSE LET next == Least({x.generation : x \in newer})
           first == Least({x.start : x \in {y \in newer : y.generation = next}})
           to == IF first < view.committed \/ MUTANT = "forgotten_rewind_begins_at_its_first_receipt" THEN first
                 ELSE view.committed
       IN CaughtUp(Settled([generation |-> next, base |-> to, committed |-> to, next_seq |-> 0, planned_end |-> to,
                            batches |-> << >>], read), read)

(* The ledger remembers the verdicts that it has just settled, of the newest epoch alone. *)
VERDICTS == {"delivered", "rejected", "skipped"}
Verdicts(g, bs) == {<<g, s>> : s \in {o \in InState(bs, VERDICTS) : bs[o].attempts > 0}}
Remembers(r) ==
  LET new == Verdicts(generation', batches') \ Verdicts(generation, batches)
      e == runs[r].epoch
  IN asked' = CASE MAX_SINK_RESTORES = 0 \/ new = {} -> asked
                [] MAX_SINK_RESTORES > 0 /\ new # {} /\ e > asked.epoch -> [epoch |-> e, batches |-> new]
                [] OTHER -> [asked EXCEPT !.batches = @ \cup new]

(* Behind the fence: read the receipts (kafka: up to an end that the last stable offset has reached) and agree with them.
   Reading and the ledger's transaction are one step here: behind a fence nothing happens between them, and a marker put
   between them is like one put right after. *)
Reconcile(r) ==
  /\ runs[r].pc = "fenced" /\ LedgerOk(r) /\ hidden = {}
  /\ LET read == IF MUTANT = "receipts_read_before_the_fence" THEN runs[r].found ELSE ReadNow
         known == [generation |-> generation, base |-> base, committed |-> committed, next_seq |-> next_seq,
                   planned_end |-> planned_end, batches |-> batches]
         view == CaughtUp(Settled(known, read), read)
     IN /\ generation' = view.generation /\ base' = view.base /\ committed' = view.committed
        /\ next_seq' = view.next_seq /\ planned_end' = view.planned_end /\ batches' = view.batches
        /\ RollForward(read)
  /\ runs' = [runs EXCEPT ![r] = [Idle EXCEPT !.pc = "ready", !.epoch = runs[r].epoch, !.fresh = TRUE, !.low = runs[r].low]]
  /\ raised' = Max(raised, runs[r].epoch) /\ Remembers(r)
  /\ Free /\ UNCHANGED <<lease, phase, guard, neighbour, lanes, reports, barrier, counters, archives, below>>

-----------------------------------------------------------------------------
(* A run works: plan, begin a wave, settle what is reported, give up what is not. *)

Holds(r) == runs[r].pc = "ready" /\ LedgerOk(r)
Plans == phase = "running" \/ MUTANT = "plans_while_draining"
Begins == phase = "running" \/ MUTANT = "begins_while_draining"

RECURSIVE Planned(_, _, _)
Planned(bs, spans, seq) ==
  IF spans = << >> THEN bs
  ELSE Planned((seq :> Fresh(Head(spans).start, Head(spans).end)) @@ bs, Tail(spans), seq + 1)

(* Each planning looks whether the source has given out positions below those that were read. If it has, the run fails
   with an alarm, and so does every later one: what the ledger noted stays as it is until a person has answered. *)
Look(r) ==
  /\ Holds(r) /\ witness < source_low
  /\ MUTANT # "lower_positions_not_looked_for"
  /\ Quits(r)
  /\ witness' = IF MUTANT = "alarm_is_noted_as_seen" THEN source_low ELSE witness
  /\ reports' = {m \in reports : m.epoch # runs[r].epoch}
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, barrier, counters, archives, standing, source_low, dealt_with, silent>>

(* A person has had the positions read again, or says that they do not matter. *)
Answer ==
  /\ dealt_with < source_low
  /\ dealt_with' = source_low /\ witness' = source_low
  /\ Free /\ UNCHANGED <<lease, work, sink, runs, lanes, reports, barrier, counters, archives, standing, source_low, silent>>

GivesOutLower ==
  /\ source_low < MAX_LOWER /\ planned_end > 0
  /\ source_low' = source_low + 1
  /\ Free /\ UNCHANGED <<lease, work, sink, runs, lanes, reports, barrier, counters, archives, standing, witness, dealt_with, silent>>

Looks == witness = source_low \/ MUTANT = "lower_positions_not_looked_for"

(* The next spans of the source, or of a gap. *)
Plan(r) ==
  /\ Holds(r) /\ Plans /\ Looks
  /\ \E count \in PLANS : \E length \in LENGTHS :
       LET start == IF Gaps = {} THEN planned_end ELSE Least(Gaps)
           spans == [i \in 1 .. count |-> [start |-> start + (i - 1) * length, end |-> start + i * length]]
           end == start + count * length
       IN /\ end <= SOURCE_END
          /\ Gaps # {} => start .. (end - 1) \subseteq Gaps
          /\ batches' = Planned(batches, spans, next_seq)
          /\ next_seq' = next_seq + count
          /\ planned_end' = Max(planned_end, end)
  /\ Free /\ UNCHANGED <<lease, phase, generation, base, committed, sink, runs, lanes, reports, barrier, counters, copies>>

(* What may be begun: a pinned pipeline's list ends at the first batch that may not. *)
Candidates ==
  LET planned == InState(batches, {"planned"}) IN
  CASE MUTANT = "cancelled_batch_not_begun_again" -> planned \ Cancelled(batches)
    [] PINNED /\ MUTANT # "held_batch_is_overtaken" -> {s \in planned : \A o \in blocking : o < s => o \in planned}
    [] OTHER -> planned

TaskOf(s) == [seq |-> s, attempt |-> waves + 1, instruction |-> batches[s].instruction,
              start |-> batches[s].start, end |-> batches[s].end]
InOrder(S) == [i \in 1 .. Cardinality(S) |-> CHOOSE s \in S : Cardinality({o \in S : o < s}) = i - 1]
Lane(r, S, copy) ==
  [epoch |-> runs[r].epoch, generation |-> generation, copy |-> copy, pc |-> IF FENCE = "table" THEN "staged" ELSE "submitted",
   tasks |-> [i \in 1 .. Cardinality(S) |-> TaskOf(InOrder(S)[i])]]

(* Open an attempt of each batch of a wave and submit its lanes; Spark may execute one of them twice, at any time. *)
Begin(r) ==
  /\ Holds(r) /\ Begins
  /\ waves < MAX_WAVES /\ waves' = waves + 1
  /\ ONE_OWNER \/ \A s \in InState(batches, {"in_flight", "sent"}) : batches[s].epoch = 0   \* one wave after the other
  /\ \E wave \in SUBSET Candidates \ {{}} :
       /\ PINNED => \A s \in wave : \A o \in Candidates : o < s => o \in wave
       /\ LET bs == [s \in DOMAIN batches |->
                       IF s \notin wave THEN batches[s]
                       ELSE [batches[s] EXCEPT !.state = IF DELIVERY = "at_most_once" THEN "sent" ELSE "in_flight",
                                               !.attempts = waves + 1, !.epoch = runs[r].epoch, !.cancelled = FALSE]]
              parts == IF PINNED THEN {wave} ELSE {{s} : s \in wave}
          IN /\ batches' = bs
             /\ committed' = Advance(committed, bs)
             /\ \E twice \in {{}} \cup {{p} : p \in parts} :
                  /\ twins + Cardinality(twice) <= MAX_TWINS
                  /\ twins' = twins + Cardinality(twice)
                  /\ lanes' = lanes \cup {Lane(r, p, 1) : p \in parts} \cup {Lane(r, p, 2) : p \in twice}
  /\ runs' = [o \in RUNS |-> IF runs[o].epoch = epoch THEN [runs[o] EXCEPT !.fresh = FALSE] ELSE runs[o]]
  /\ Free
  /\ UNCHANGED <<lease, phase, generation, base, next_seq, planned_end, sink, reports, barrier, acts, copies>>

(* After a failure the policy tries again, has `rejected` claimed, or holds the batch; it never resolves it by itself. *)
AfterFailure(b, decision) ==
  CASE decision = "reject" -> [Back(b) EXCEPT !.instruction = "reject"]
    [] decision = "hold" -> [Back(b) EXCEPT !.state = "held"]
    [] OTHER -> Back(b)

(* An outcome with a receipt: it is taken, or imported if its range is not the batch's. *)
SettleVerdict(r) ==
  /\ Holds(r)
  /\ \E s \in InState(batches, {"in_flight", "sent"}) :
       LET found == IF MUTANT = "marker_believed_unplaced" THEN ReceiptsOf(generation, s)
                    ELSE ReceiptsOf(generation, s) \ unplaced
           strange == {x \in found : Stranger(batches, x)}
       IN /\ batches[s].epoch = runs[r].epoch /\ found # {}
          /\ Ledgered(Imported(Acked(batches, found \ strange), strange), strange)
          /\ reports' = {m \in reports : m.seq # s}
  /\ Remembers(r)
  /\ Free /\ UNCHANGED <<lease, sink, runs, lanes, barrier, counters, archives, raised, below>>

(* An outcome without one. *)
SettleFailure(r) ==
  /\ Holds(r)
  /\ \E m \in reports :
       /\ m.epoch = runs[r].epoch
       /\ reports' = {o \in reports : o.seq # m.seq}
       /\ LET b == batches[m.seq]
             open == b.state = "in_flight" /\ b.attempts = m.attempt
          IN CASE ~open -> UNCHANGED <<work, letters>>
               [] open /\ m.outcome = "not_attempted" -> Ledgered([batches EXCEPT ![m.seq] = Back(b)], {}) /\ UNCHANGED letters
               [] open /\ m.outcome = "failed" /\ MUTANT = "failure_means_not_delivered" ->
                    /\ Ledgered([batches EXCEPT ![m.seq] = Done(b, "rejected")], {})
                    /\ letters' = [letters EXCEPT ![generation] =
                                     [p \in Positions |-> IF p \in Span(b) THEN 1 ELSE @[p]]]
               [] OTHER -> /\ \E decision \in EXHAUSTED :
                                /\ decision = "reject" => b.instruction = "deliver"
                                /\ Ledgered([batches EXCEPT ![m.seq] = AfterFailure(b, decision)], {})
                           /\ UNCHANGED letters
  /\ Free
  /\ UNCHANGED <<lease, guard, receipts, unplaced, hidden, rows, stale_commit, neighbour, runs, lanes, barrier, counters, copies>>

Ours(r) == {s \in InState(batches, {"in_flight", "sent"}) : batches[s].epoch = runs[r].epoch}

(* No lane of the wave is left, and no report on its way. *)
WaveIsOver(r) == \A s \in Ours(r) :
  /\ \A m \in reports : m.seq # s
  /\ \A l \in lanes : l.generation = generation => \A i \in 1 .. Len(l.tasks) :
       <<l.tasks[i].seq, l.tasks[i].attempt>> # <<s, batches[s].attempts>>

(* The run gives its wave up, rightly or not, reads receipts without a fence, and puts back what seems to have none; what
   was sent at most once is not waited for any more. *)
Lost(r) ==
  /\ Holds(r) /\ Ours(r) # {} /\ MUTANT # "lost_wave_not_noticed"
  /\ LET there == {x \in receipts : x.generation = generation /\ x.seq \in Ours(r)} IN \E seen \in SUBSET there :
       LET strange == {x \in seen : Stranger(batches, x)}
           acked == Imported(Acked(batches, seen \ strange), strange)
       IN /\ Cost(IF WaveIsOver(r) /\ seen = there THEN 0 ELSE 1)
          /\ Ledgered([s \in DOMAIN acked |->
                         IF acked[s].epoch # runs[r].epoch THEN acked[s]
                         ELSE IF acked[s].state = "sent" THEN Ended(acked[s])
                         ELSE Back(acked[s])], strange)
          /\ RollForward(seen)
  /\ reports' = {m \in reports : m.epoch # runs[r].epoch}
  /\ Remembers(r)
  /\ UNCHANGED <<lease, guard, neighbour, runs, lanes, barrier, counters, archives, raised, below>>

(* It ends and gives the lease back. (It also does so after an exception, with attempts still open; to the others that
   looks like a crash, for a lease can be taken over at any time.) *)
Release(r) ==
  /\ Holds(r) /\ in_flight = {} /\ (phase = "running" => Candidates = {} /\ planned_end = SOURCE_END)
  /\ witness >= runs[r].low \/ MUTANT \in {"lower_positions_not_looked_for", "done_without_a_look"}
  /\ owner' = None
  /\ silent' = (silent \/ runs[r].low > dealt_with)
  /\ Quits(r) /\ Cost(1)
  /\ reports' = {m \in reports : m.epoch # runs[r].epoch}
  /\ UNCHANGED <<epoch, work, sink, lanes, barrier, counters, archives, standing, source_low, witness, dealt_with>>

(* It dies, wherever it is; its lanes may live on. *)
Crash(r) ==
  /\ runs[r].pc # "idle"
  /\ Quits(r) /\ Cost(1)
  /\ reports' = IF ONE_OWNER THEN reports ELSE {m \in reports : m.epoch # runs[r].epoch}
  /\ UNCHANGED <<lease, work, sink, lanes, barrier, counters, copies>>

(* It finds out that it lost the lease. *)
Stale(r) ==
  /\ runs[r].pc \in {"fenced", "ready"} /\ ~LedgerOk(r)
  /\ Quits(r)
  /\ Free /\ UNCHANGED <<lease, work, sink, lanes, reports, barrier, counters, copies>>

(* Receipts below the checkpoint go, but only those that no lane alive could still want to find. *)
Purge(r) ==
  /\ PURGES /\ Holds(r) /\ FENCE # "marker"
  /\ LET old == {x \in receipts : /\ x.generation = generation /\ x.end <= committed
                                  /\ x.epoch < runs[r].epoch \/ MUTANT = "purge_of_the_own_epoch"}
     IN old # {} /\ receipts' = receipts \ old /\ hidden' = hidden \ old
  /\ Free
  /\ UNCHANGED <<lease, work, guard, unplaced, rows, letters, stale_commit, neighbour, runs, lanes, reports, barrier, counters, copies>>

RunFences(r) ==
  \/ PostgresFence(r) \/ KafkaFenceCheck(r) \/ KafkaFenceWrite(r) \/ KafkaFenceIds(r)
  \/ TableFenceFile(r) \/ TableFenceLook(r) \/ TableFenceCommit(r) \/ MarkerFence(r)

RunStarts(r) == Admit(r) \/ Acquire(r) \/ Attach(r) \/ RunFences(r) \/ PostgresEndOlder(r) \/ ReadEarly(r) \/ Reconcile(r)
RunWorks(r) == Look(r) \/ Plan(r) \/ Begin(r) \/ SettleVerdict(r) \/ SettleFailure(r) \/ Lost(r) \/ Purge(r)
RunEnds(r) == Release(r) \/ Crash(r) \/ Stale(r)

-----------------------------------------------------------------------------
(* People. With the lease held their acts wait as intents, and the holder applies them between its other commands; with
   the lease free the act's own command begins like a run. Either way a holder that has reconciled carries them out. *)

Act(r, name) == name \in ACTS /\ Holds(r) /\ acts < MAX_ACTS /\ acts' = acts + 1 /\ UNCHANGED <<waves, twins>>
ChangesBatch(s, b) ==
  /\ Ledgered([batches EXCEPT ![s] = b], {})
  /\ Free /\ UNCHANGED <<lease, sink, runs, lanes, reports, barrier, copies>>
ChangesPhase(new) ==
  /\ phase' = new
  /\ Free
  /\ UNCHANGED <<lease, generation, base, committed, next_seq, planned_end, batches, sink, runs, lanes, reports, barrier,
                 copies>>

Hold(r) == /\ Act(r, "hold")
           /\ \E s \in InState(batches, {"planned"}) : ChangesBatch(s, [batches[s] EXCEPT !.state = "held"])

(* Policy holds batches too, so a person may always release one. *)
ReleaseHeld(r) ==
  /\ "release" \in ACTS /\ Holds(r)
  /\ \E s \in InState(batches, {"held"}) :
       /\ MUTANT = "begun_batch_not_released" => batches[s].attempts = 0
       /\ ChangesBatch(s, [batches[s] EXCEPT !.state = "planned"])
  /\ UNCHANGED counters

(* A batch never begun is let go in the ledger alone; any other by claiming `void`. *)
Skip(r) ==
  /\ Act(r, "skip")
  /\ \E s \in InState(batches, {"planned"}) :
       IF batches[s].attempts = 0 \/ MUTANT = "skip_of_a_begun_batch"
       THEN ChangesBatch(s, Done(batches[s], "skipped"))
       ELSE ChangesBatch(s, [batches[s] EXCEPT !.instruction = "void"])

Cancel(r) ==
  /\ Act(r, "cancel") /\ Ours(r) # {}
  /\ Ledgered([s \in DOMAIN batches |-> IF s \in Ours(r) \cap in_flight THEN [Back(batches[s]) EXCEPT !.cancelled = TRUE]
                                        ELSE batches[s]], {})
  /\ reports' = {}
  /\ Free /\ UNCHANGED <<lease, sink, runs, lanes, barrier, copies>>

Drain(r) == Act(r, "drain") /\ phase = "running" /\ ChangesPhase("draining")

Stop(r) == /\ "drain" \in ACTS /\ Holds(r) /\ phase = "draining"
           /\ in_flight = {} \/ MUTANT = "stop_with_work_in_flight"
           /\ ChangesPhase("stopped") /\ UNCHANGED counters

Resume(r) == "drain" \in ACTS /\ Holds(r) /\ phase # "running" /\ ChangesPhase("running") /\ UNCHANGED counters

(* Takes over, fences and reconciles first: then nothing is in flight any more. *)
ForceStop(r) ==
  /\ Act(r, "force_stop") /\ phase # "stopped"
  /\ runs[r].fresh \/ MUTANT = "force_stop_without_takeover"
  /\ ChangesPhase("stopped")

(* Behind the fence of its own acquire, and reconciled, so that its number is one that neither the ledger nor the sink has
   seen: a new generation, from anywhere up to the checkpoint. *)
Rewind(r) ==
  /\ Act(r, "rewind")
  /\ runs[r].fresh \/ MUTANT = "rewind_without_an_epoch"
  /\ LET new == IF MUTANT = "rewind_in_the_same_generation" THEN generation ELSE generation + 1
     IN new \in Generations /\ generation' = new
  /\ \E to \in 0 .. committed : base' = to /\ committed' = to /\ planned_end' = to
  /\ next_seq' = 0 /\ batches' = << >>
  /\ reports' = {}
  /\ Free /\ UNCHANGED <<lease, phase, sink, runs, lanes, barrier, copies>>

PeopleAct(r) ==
  Hold(r) \/ ReleaseHeld(r) \/ Skip(r) \/ Cancel(r) \/ Drain(r) \/ Stop(r) \/ Resume(r) \/ ForceStop(r) \/ Rewind(r)

(* The ledger's database is copied at any time, and later set back to that copy. (A run that goes on under the very lease
   that the copy holds would not notice; so people stop that one first.) *)
Backup ==
  /\ restores < MAX_RESTORES /\ backup = {} /\ in_flight = {}
  /\ backup' = {[lease |-> lease, work |-> work]}
  /\ Free /\ UNCHANGED <<lease, work, sink, runs, lanes, reports, barrier, counters, restores, sink_copy, sink_restores,
                         standing, below>>

Restore ==
  /\ \E copy \in backup :
       /\ <<lease, work>> # <<copy.lease, copy.work>>
       /\ \A r \in RUNS : runs[r].pc # "idle" => <<runs[r].epoch, OwnerOf(r)>> # copy.lease
       /\ epoch' = copy.lease[1] /\ owner' = copy.lease[2]
       /\ phase' = copy.work[1] /\ generation' = copy.work[2] /\ base' = copy.work[3] /\ committed' = copy.work[4]
       /\ next_seq' = copy.work[5] /\ planned_end' = copy.work[6] /\ batches' = copy.work[7]
  /\ backup' = {} /\ restores' = restores + 1
  /\ reports' = {}
  /\ Free /\ UNCHANGED <<sink, runs, lanes, barrier, counters, sink_copy, sink_restores, standing, below>>

(* The sink's store is copied at any time, bookkeeping and target alike, and later set back to that copy: restored, or failed
   over without its last transactions. Whoever was writing loses its connection. (Between a run's look at the sink and
   its fence nobody sets it back: a run that has been admitted and not yet fenced would notice one run later.) *)
SinkBackup ==
  /\ sink_restores < MAX_SINK_RESTORES /\ sink_copy = {}
  /\ sink_copy' = {[guard |-> guard, receipts |-> receipts, rows |-> rows, letters |-> letters]}
  /\ Free /\ UNCHANGED <<lease, work, sink, runs, lanes, reports, barrier, counters, backup, restores, sink_restores, standing,
                         below>>

SinkRestore ==
  /\ \A r \in RUNS : runs[r].pc \in {"idle", "ready"}
  /\ \E copy \in sink_copy :
       /\ fence' = copy.guard[1] /\ fence_file' = copy.guard[2] /\ table' = copy.guard[3]
       /\ receipts' = copy.receipts /\ rows' = copy.rows /\ letters' = copy.letters
  /\ sink_copy' = {} /\ sink_restores' = sink_restores + 1
  /\ lanes' = {} /\ reports' = {} /\ hidden' = {} /\ neighbour' = FALSE
  /\ runs' = [r \in RUNS |-> [runs[r] EXCEPT !.fresh = FALSE]]
  /\ Free /\ UNCHANGED <<lease, work, unplaced, stale_commit, barrier, counters, backup, restores, standing, below>>

Next ==
  \/ \E r \in RUNS : RunStarts(r) \/ RunWorks(r) \/ RunEnds(r) \/ PeopleAct(r)
  \/ \E l \in lanes : Elder(l) /\ (LaneStep(l) \/ LaneFails(l) \/ TableStageFails(l))
  \/ KafkaNeighbour
  \/ Backup \/ Restore \/ SinkBackup \/ SinkRestore
  \/ GivesOutLower \/ Answer

Spec == Init /\ [][Next]_vars

=============================================================================
