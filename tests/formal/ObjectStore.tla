---------------------------- MODULE ObjectStore ----------------------------
(***************************************************************************)
(* The files sink in an object store. A pipeline has one object, the head,  *)
(* with the epoch of its fence and its receipts; it is only ever replaced   *)
(* by a request that names the version that was read. A request may arrive  *)
(* at any time after it was sent, or never, also after its sender has died, *)
(* and its answer may be lost: then the sender reads the head back.         *)
(*                                                                          *)
(* Lanes stage objects; a commit adds their receipts to the head; then each *)
(* staged object is copied to its visible name and removed. Whoever finds a *)
(* receipt whose object is still staged does that too.                      *)
(*                                                                          *)
(* A run is its epoch. Every step of a run may be its last.                 *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  MAX_EPOCH,   \* the runs are 1 .. MAX_EPOCH; any of them may live while another takes over
  BATCHES,
  TWINS,       \* how often a run may stage a batch: Spark may execute a lane twice
  MAX_VERSION, \* how many requests are sent in all
  MUTANT       \* the one rule that is switched off, or "none"

VARIABLES
  head,        \* version, epoch, receipts: a set of files: of one batch, staged by one run, for the n-th time
  flight,      \* requests that were sent and not carried out yet
  sent,        \* the number of requests so far, which is the version of the newest
  runs,        \* by epoch: where it is, the head as it read it, and the version that it has asked for
  staged, visible,
  barrier,     \* the highest epoch whose fence has returned
  stale        \* whether a commit of an older epoch has taken effect since

vars == <<head, flight, sent, runs, staged, visible, barrier, stale>>

Epochs == 1 .. MAX_EPOCH
Max(a, b) == IF a > b THEN a ELSE b
Batches(receipts) == {r.batch : r \in receipts}

Init ==
  /\ head = [version |-> 0, epoch |-> 0, receipts |-> {}]
  /\ flight = {} /\ sent = 0
  /\ runs = [e \in Epochs |-> [pc |-> "new", seen |-> [version |-> 0, epoch |-> 0, receipts |-> {}], asked |-> 0]]
  /\ staged = {} /\ visible = {}
  /\ barrier = 0 /\ stale = FALSE

At(e, pc) == runs[e].pc = pc
Goes(e, pc) == runs' = [runs EXCEPT ![e].pc = pc]

(* Take over: read the head, replace it with the epoch, look what came of it. *)
Read(e) ==
  /\ At(e, "new")
  /\ runs' = [runs EXCEPT ![e].pc = IF head.epoch > e THEN "dead" ELSE "read", ![e].seen = head]
  /\ UNCHANGED <<head, flight, sent, staged, visible, barrier, stale>>

Send(e, receipts, pc) ==
  /\ sent < MAX_VERSION
  /\ sent' = sent + 1
  /\ flight' = flight \cup
       {[by |-> e, known |-> runs[e].seen.version, version |-> sent + 1, epoch |-> e, receipts |-> receipts]}
  /\ runs' = [runs EXCEPT ![e].pc = pc, ![e].asked = sent + 1]

Fence(e) ==
  /\ At(e, "read")
  /\ IF MUTANT = "fence_reads_alone"
     THEN Goes(e, "fenced") /\ barrier' = Max(e, barrier) /\ UNCHANGED <<flight, sent>>
     ELSE /\ Send(e, IF MUTANT = "fence_forgets_receipts" THEN {} ELSE runs[e].seen.receipts, "fencing")
          /\ UNCHANGED barrier
  /\ UNCHANGED <<head, staged, visible, stale>>

(* The store carries a request out, if its condition holds; else it is refused, which only its sender minds. *)
CarryOut(q) ==
  /\ flight' = flight \ {q}
  /\ IF q.known = head.version \/ MUTANT = "condition_ignored"
     THEN /\ head' = [version |-> q.version, epoch |-> q.epoch, receipts |-> q.receipts]
          /\ stale' = (stale \/ (q.epoch < barrier /\ q.receipts # head.receipts))
     ELSE UNCHANGED <<head, stale>>
  /\ UNCHANGED <<sent, runs, staged, visible, barrier>>

Pending(e) == \E q \in flight : q.version = runs[e].asked

(* What a sender knows: the head has its version now, or a later one that was built on it; else the request is refused
   once it has left the network, and unknown before. *)
Mine(e) == head.version = runs[e].asked

Fenced(e) ==
  /\ At(e, "fencing")
  /\ IF Mine(e)
     THEN Goes(e, "fenced") /\ barrier' = Max(e, barrier)
     ELSE /\ \/ ~Pending(e) /\ Goes(e, "new")                 \* refused: read again
             \/ Goes(e, "dead")                               \* unknown: the run fails
          /\ UNCHANGED barrier
  /\ UNCHANGED <<head, flight, sent, staged, visible, stale>>

(* After the fence: publish what older runs have committed, then remove what they only staged. *)
Sweep(e) ==
  /\ At(e, IF MUTANT = "sweep_before_the_fence" THEN "read" ELSE "fenced")
  /\ LET done == {f \in staged : f \in head.receipts}
     IN /\ visible' = CASE MUTANT = "sweep_publishes_nothing" -> visible
                        [] MUTANT = "sweep_removes_objects_of_older_runs" -> {f \in visible : f.epoch = e} \cup done
                        [] OTHER -> visible \cup done
        /\ staged' = staged \ (done \cup {f \in staged : f.epoch < e})
  /\ UNCHANGED <<head, flight, sent, runs, barrier, stale>>

(* Deliver one batch. *)
Stage(e, file) ==
  /\ At(e, "fenced") /\ file.epoch = e
  /\ file \notin staged \cup visible
  /\ file.batch \notin Batches(head.receipts)
  /\ staged' = staged \cup {file}
  /\ visible' = IF MUTANT = "visible_before_the_commit" THEN visible \cup {file} ELSE visible
  /\ UNCHANGED <<head, flight, sent, runs, barrier, stale>>

Look(e) ==
  /\ At(e, "fenced")
  /\ runs' = [runs EXCEPT ![e].pc = IF head.epoch = e \/ MUTANT \in {"epoch_not_checked", "fence_reads_alone"}
                                      THEN "looked" ELSE "dead",
                          ![e].seen = head]
  /\ UNCHANGED <<head, flight, sent, staged, visible, barrier, stale>>

Commit(e) ==
  /\ At(e, "looked")
  /\ LET own == {f \in staged : f.epoch = e
                   /\ (f.batch \notin Batches(runs[e].seen.receipts) \/ MUTANT = "receipts_not_read")}
     IN \E chosen \in SUBSET own :
          /\ chosen # {} /\ \A x, y \in chosen : x.batch = y.batch => x = y
          /\ Send(e, runs[e].seen.receipts \cup chosen, "committing")
  /\ UNCHANGED <<head, staged, visible, barrier, stale>>

Committed(e) ==
  /\ At(e, "committing")
  /\ \/ Mine(e) /\ Goes(e, "fenced") /\ UNCHANGED staged
     \/ ~Mine(e) /\ ~Pending(e) /\ Goes(e, "fenced") /\ UNCHANGED staged   \* refused: look again
     \/ ~Mine(e) /\ Goes(e, "dead")                                       \* unknown: the batches fail, their objects stay
        /\ staged' = IF MUTANT = "unknown_counts_as_failed" THEN {f \in staged : f.epoch # e} ELSE staged
  /\ UNCHANGED <<head, flight, sent, visible, barrier, stale>>

(* Copy, then remove; done by whoever finds the receipt. *)
Copy(e, f) ==
  /\ At(e, "fenced") /\ f \in staged /\ f \in head.receipts
  /\ visible' = visible \cup {f}
  /\ UNCHANGED <<head, flight, sent, runs, staged, barrier, stale>>

Remove(e, f) ==
  /\ At(e, "fenced") /\ f \in staged /\ f \in head.receipts
  /\ f \in visible \/ MUTANT = "removed_before_the_copy"
  /\ staged' = staged \ {f}
  /\ UNCHANGED <<head, flight, sent, runs, visible, barrier, stale>>

Die(e) == ~At(e, "dead") /\ Goes(e, "dead") /\ UNCHANGED <<head, flight, sent, staged, visible, barrier, stale>>
Lose(q) == flight' = flight \ {q} /\ UNCHANGED <<head, sent, runs, staged, visible, barrier, stale>>

Next ==
  \/ \E e \in Epochs : Read(e) \/ Fence(e) \/ Fenced(e) \/ Sweep(e) \/ Look(e) \/ Commit(e) \/ Committed(e) \/ Die(e)
  \/ \E e \in Epochs, file \in [batch : BATCHES, epoch : Epochs, twin : TWINS] : Stage(e, file)
  \/ \E e \in Epochs, f \in staged : Copy(e, f) \/ Remove(e, f)
  \/ \E q \in flight : CarryOut(q) \/ Lose(q)

Spec == Init /\ [][Next]_vars

NoCommitByStaleEpoch == ~stale
AtMostOneVerdictPerBatch == \A x, y \in head.receipts : x.batch = y.batch => x = y
VisibleHasReceipt == visible \subseteq head.receipts
ReceiptHasItsRows == head.receipts \subseteq staged \cup visible
ReceiptsStay == [][head.receipts \subseteq head'.receipts]_vars
VisibleStays == [][visible \subseteq visible']_vars

(* Situations that must be reached, or the properties above would say nothing: each of these is expected to fail. *)
NeverTwoFences == barrier < 2
NeverVisible == visible = {}
NeverRefused == \A e \in Epochs : ~(At(e, "committing") /\ ~Mine(e) /\ ~Pending(e) /\ barrier > e)
=============================================================================
