---------------------------- MODULE SchemaChange ----------------------------
(***************************************************************************)
(* Columns of a source change while its rows are replicated, as the section *)
(* schema of a pipeline does it. A run plans rows, then looks at the        *)
(* source's columns. If they are not those of the newest schema version, it *)
(* begins a version: it changes the target, with a receipt in the same      *)
(* transaction, and records the version in the ledger. New columns wait     *)
(* until every planned batch is resolved; for a column that is gone, the    *)
(* planned batches are read under the new version at once. A lane reads     *)
(* under the version of its wave, and refuses other columns.                *)
(*                                                                          *)
(* A column has a number, by which a rename is recognised, and a value of   *)
(* it is that number; 0 stands for null, and for no column. A batch is one  *)
(* row. A run is its epoch, and may stop at any step; its lanes may go on.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  MAX_EPOCH,    \* the runs are 1 .. MAX_EPOCH; any of them may live while another takes over
  ROWS,         \* how many rows are inserted
  MAX_CHANGES,  \* of the source's columns
  FREEZES,      \* whether the declaration freezes changes, so that a person has to accept the columns
  MUTANT        \* the one rule that is switched off, or "none"

VARIABLES
  columns, last, rows, changes,                    \* the source: numbers by name, the newest number, columns of each row
  lease, batch, versions,                          \* the ledger: epoch, state of each planned row's batch, schema versions
  fence, receipts, target, delivered,              \* the sink: its schema receipts, meaning of its columns, its rows
  runs, lanes,
  accepted,                                        \* the columns that a person has accepted last
  stale                                            \* whether a transaction of an older epoch has taken effect

source == <<columns, last, rows, changes>>
ledger == <<lease, batch, versions>>
sink == <<fence, receipts, target, delivered>>
vars == <<source, ledger, sink, runs, lanes, accepted, stale>>

Names == {"a", "b"}
Epochs == 1 .. MAX_EPOCH
NoColumns == [n \in Names |-> 0]
Max(a, b) == IF a > b THEN a ELSE b
First == [number |-> 1, read |-> [n \in Names |-> IF n = "a" THEN 1 ELSE 0], position |-> 1, adds |-> FALSE,
          replanned |-> {}, renames |-> {}, allowed |-> TRUE]
Stopped == [pc |-> "dead", found |-> 0, now |-> NoColumns, next |-> First]

(* The first version has been begun: nothing can happen to it that cannot to others. *)
Init ==
  /\ columns = First.read /\ last = 1 /\ rows = << >> /\ changes = 0
  /\ lease = 0 /\ batch = << >> /\ versions = <<First>>
  /\ fence = 0 /\ receipts = <<First>>
  /\ target = [n \in Names |-> IF n = "a" THEN {1} ELSE {}]
  /\ delivered = [p \in 1 .. ROWS |-> [is |-> FALSE, values |-> NoColumns, after |-> 0]]
  /\ runs = [e \in Epochs |-> [Stopped EXCEPT !.pc = "new"]]
  /\ lanes = {} /\ accepted = NoColumns /\ stale = FALSE

At(e, pc) == runs[e].pc = pc
Leased(e) == lease = e
Current == versions[Len(versions)]
Planned == Len(batch)
Unresolved == {p \in 1 .. Planned : batch[p] # "done"}
Numbers(read) == {read[n] : n \in Names} \ {0}

(* core/schema_change.py: the changes from the columns of a version to those of the source *)
Renames(read, now) ==
  {r \in Names \X Names :
     /\ read[r[1]] # 0 /\ now[r[1]] \notin Numbers(read) /\ now[r[2]] = read[r[1]] /\ read[r[2]] = 0
     /\ now[r[1]] = 0 \/ MUTANT # "rename_unseen_if_the_name_is_given_again"}
Dropped(read, now) == {n \in Names : read[n] # 0 /\ now[n] = 0 /\ ~\E r \in Renames(read, now) : r[1] = n}
Replaced(read, now) ==
  {n \in Names : read[n] # 0 /\ now[n] \notin {0, read[n]} /\ ~\E r \in Renames(read, now) : r[1] = n}
Exchanged(read, now) == {n \in Replaced(read, now) : now[n] \in Numbers(read)}
New(read, now) ==
  {n \in Names : /\ now[n] # 0 /\ ~\E r \in Renames(read, now) : r[2] = n
                 /\ read[n] = 0 \/ \E r \in Renames(read, now) : r[1] = n}

(* A column cannot get a name that the target has for another one. A person accepts exactly the columns that were shown. *)
Declared(read, now) == ~FREEZES /\ Exchanged(read, now) = {}
Frozen(read, now) ==
  \/ ~Declared(read, now) /\ now # accepted
       /\ ~(MUTANT = "acceptance_of_other_columns_counts" /\ accepted # NoColumns)
  \/ \E r \in Renames(read, now) : target[r[2]] # {}

Waits(read, now) ==
  Unresolved # {} /\ New(read, now) # {} /\ MUTANT # "new_columns_do_not_wait"
Applied(read, now) ==
  /\ Dropped(read, now) = {} /\ Replaced(read, now) = {} /\ Renames(read, now) = {}

NextVersion(read, now) ==
  LET waits == Waits(read, now)
      kept == IF waits THEN New(read, now) ELSE {}
  IN [number |-> Len(versions) + 1,
      read |-> [n \in Names |-> IF n \in kept THEN 0 ELSE now[n]],
      position |-> Planned + 1,
      adds |-> ~waits /\ New(read, now) # {},
      replanned |-> Unresolved,
      renames |-> Renames(read, now),
      allowed |-> Declared(read, now) \/ now = accepted]

(* The target after a version. A column that is renamed takes its values along; a name that means another column of the
   source from here on means both, since the rows before keep their values. *)
From(version, n) == IF \E r \in version.renames : r[2] = n THEN (CHOOSE r \in version.renames : r[2] = n)[1] ELSE n
Meaning(version, n) ==
  LET moved == \E r \in version.renames : r[1] = n
      old == IF moved THEN {} ELSE target[From(version, n)]
  IN old \cup ({version.read[n]} \ {0})

Acquire(e) ==
  /\ At(e, "new") /\ lease < e /\ lease' = e
  /\ runs' = [f \in Epochs |->
       IF f = e THEN [runs[e] EXCEPT !.pc = "leased"]
       ELSE IF runs[f].pc \in {"works", "looks", "stores", "frozen"} THEN Stopped ELSE runs[f]]
  /\ UNCHANGED <<source, batch, versions, sink, lanes, accepted, stale>>

Settled(p) ==
  IF batch[p] # "sent" THEN batch[p] ELSE IF delivered[p].is THEN "done" ELSE "planned"

(* Fence the sink, and settle by its receipts; then record the versions that only the sink has. *)
Fence(e) ==
  /\ At(e, "leased")
  /\ IF fence < e /\ Leased(e)
     THEN /\ fence' = e /\ runs' = [runs EXCEPT ![e].pc = "works"]
          /\ batch' = [p \in 1 .. Planned |-> Settled(p)]
          /\ versions' = IF MUTANT = "versions_of_the_sink_not_read" THEN versions
                         ELSE versions \o SubSeq(receipts, Len(versions) + 1, Len(receipts))
          /\ lanes' = IF MUTANT = "lanes_are_not_fenced" THEN lanes ELSE {}
     ELSE /\ fence' = Max(e, fence) /\ runs' = [runs EXCEPT ![e] = Stopped]
          /\ UNCHANGED <<batch, versions, lanes>>
  /\ UNCHANGED <<source, lease, receipts, target, delivered, accepted, stale>>

(* Find new rows, then look at the columns. *)
Plan(e) ==
  /\ At(e, "works") /\ Leased(e)
  /\ Len(rows) > Planned \/ columns # Current.read
  /\ runs' = [runs EXCEPT ![e].pc = "looks", ![e].found = Len(rows),
                          ![e].now = IF MUTANT = "columns_looked_at_before_planning" THEN columns ELSE NoColumns]
  /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

FindLate(e) ==
  /\ MUTANT = "columns_looked_at_before_planning" /\ At(e, "looks") /\ runs[e].found < Len(rows)
  /\ runs' = [runs EXCEPT ![e].found = Len(rows)]
  /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

Look(e) ==
  LET read == Current.read
      now == IF runs[e].now = NoColumns THEN columns ELSE runs[e].now
      goes(pc) == runs' = [runs EXCEPT ![e].pc = pc, ![e].now = NoColumns]
  IN /\ At(e, "looks") /\ Leased(e)
     /\ IF now = read THEN goes("stores")
        ELSE IF Frozen(read, now) THEN goes("frozen")
        ELSE IF Waits(read, now) /\ (Applied(read, now) \/ MUTANT = "all_changes_wait") THEN goes("works")
        ELSE runs' = [runs EXCEPT ![e].pc = "applies", ![e].now = now, ![e].next = NextVersion(read, now)]
     /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

(* One transaction: claim the version's receipt under the fence, and change the target. *)
Change(version) ==
  /\ target' = [n \in Names |-> Meaning(version, n)]
  /\ delivered' = [p \in 1 .. ROWS |->
       [delivered[p] EXCEPT !.values = [n \in Names |->
          IF \E r \in version.renames : r[1] = n THEN 0 ELSE @[From(version, n)]]]]

Apply(e) ==
  LET version == runs[e].next IN
  /\ At(e, "applies")
  /\ IF (fence = e \/ MUTANT = "change_is_not_fenced") /\ version.number = Len(receipts) + 1
     THEN /\ Change(version)
          /\ receipts' = IF MUTANT = "receipt_after_the_change" THEN receipts ELSE Append(receipts, version)
          /\ runs' = [runs EXCEPT ![e].pc = IF MUTANT = "receipt_after_the_change" THEN "claims" ELSE "records"]
          /\ stale' = (stale \/ e < fence)
     ELSE runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<receipts, target, delivered, stale>>
  /\ UNCHANGED <<source, ledger, fence, lanes, accepted>>

ClaimLate(e) ==
  /\ At(e, "claims") /\ receipts' = Append(receipts, runs[e].next) /\ runs' = [runs EXCEPT ![e].pc = "records"]
  /\ UNCHANGED <<source, ledger, fence, target, delivered, lanes, accepted, stale>>

Record(e) ==
  /\ Leased(e)
  /\ \/ At(e, "records") /\ runs' = [runs EXCEPT ![e].pc = "looks"]
     \/ MUTANT = "version_recorded_before_the_receipt" /\ At(e, "applies") /\ Len(versions) < runs[e].next.number
        /\ UNCHANGED runs
  /\ versions' = IF Len(versions) < runs[e].next.number THEN Append(versions, runs[e].next) ELSE versions
  /\ UNCHANGED <<source, lease, batch, sink, lanes, accepted, stale>>

Store(e) ==
  /\ At(e, "stores") /\ Leased(e)
  /\ batch' = [p \in 1 .. Max(Planned, runs[e].found) |-> IF p <= Planned THEN batch[p] ELSE "planned"]
  /\ runs' = [runs EXCEPT ![e].pc = "works", ![e].found = 0]
  /\ UNCHANGED <<source, lease, versions, sink, lanes, accepted, stale>>

(* A wave of one batch, whose lane reads under the newest version. *)
Send(e, p) ==
  /\ At(e, "works") /\ Leased(e) /\ p \in 1 .. Planned /\ batch[p] = "planned"
  /\ batch' = [batch EXCEPT ![p] = "sent"]
  /\ lanes' = lanes \cup {[epoch |-> e, row |-> p, read |-> Current.read, values |-> NoColumns, pc |-> "reads"]}
  /\ UNCHANGED <<source, lease, versions, sink, runs, accepted, stale>>

(* One statement reads a row by the names of its columns; those that the version reads must be the version's. *)
Value(p, number) == IF number \in rows[p] THEN number ELSE 0

LaneReads(l) ==
  LET fits == \A n \in Names : l.read[n] # 0 =>
                \/ columns[n] = l.read[n]
                \/ MUTANT = "columns_compared_by_name" /\ columns[n] # 0
                \/ MUTANT = "columns_not_compared"
      values == [n \in Names |-> IF l.read[n] = 0 THEN 0 ELSE Value(l.row, columns[n])]
  IN /\ l.pc = "reads"
     /\ lanes' = (lanes \ {l}) \cup IF fits THEN {[l EXCEPT !.pc = "writes", !.values = values]} ELSE {}
     /\ UNCHANGED <<source, ledger, sink, runs, accepted, stale>>

(* One transaction: claim the receipt under the fence, and write the columns of the version. *)
LaneCommits(l) ==
  /\ l.pc = "writes" /\ lanes' = lanes \ {l}
  /\ IF /\ fence = l.epoch \/ MUTANT = "lanes_are_not_fenced"
        /\ ~delivered[l.row].is
        /\ \A n \in Names : l.read[n] # 0 => target[n] # {} \/ MUTANT = "missing_columns_are_left_out"
     THEN /\ delivered' = [delivered EXCEPT ![l.row] =
               [is |-> TRUE, after |-> Len(receipts),
                values |-> [n \in Names |-> IF target[n] = {} THEN 0 ELSE l.values[n]]]]
          /\ stale' = (stale \/ l.epoch < fence)
     ELSE UNCHANGED <<delivered, stale>>
  /\ UNCHANGED <<source, ledger, fence, receipts, target, runs, accepted>>

(* A wave ends: what has a receipt is settled; what has none is planned again, even if its lane still lives. *)
Settle(e, p) ==
  /\ At(e, "works") /\ Leased(e) /\ p \in 1 .. Planned /\ batch[p] = "sent"
  /\ batch' = [batch EXCEPT ![p] = Settled(p)]
  /\ UNCHANGED <<source, lease, versions, sink, runs, lanes, accepted, stale>>

(* The world *)
Insert ==
  /\ Len(rows) < ROWS /\ rows' = Append(rows, Numbers(columns))
  /\ UNCHANGED <<columns, last, changes, ledger, sink, runs, lanes, accepted, stale>>

Alter ==
  /\ changes < MAX_CHANGES /\ lease < MAX_EPOCH /\ changes' = changes + 1
  /\ \E n \in Names :
       \/ columns[n] = 0 /\ columns' = [columns EXCEPT ![n] = last + 1] /\ last' = last + 1
       \/ columns[n] # 0 /\ columns' = [columns EXCEPT ![n] = 0] /\ UNCHANGED last
       \/ columns[n] # 0 /\ columns' = [columns EXCEPT ![n] = last + 1] /\ last' = last + 1   \* dropped and added
       \/ \E m \in Names \ {n} :                                                            \* renamed, or exchanged
            /\ columns[n] # 0 /\ columns' = [columns EXCEPT ![n] = columns[m], ![m] = columns[n]] /\ UNCHANGED last
  /\ UNCHANGED <<rows, ledger, sink, runs, lanes, accepted, stale>>

Accept ==
  /\ FREEZES /\ accepted' = columns
  /\ UNCHANGED <<source, ledger, sink, runs, lanes, stale>>

Works(e) ==
  \/ Acquire(e) \/ Fence(e) \/ Plan(e) \/ FindLate(e) \/ Look(e) \/ Apply(e) \/ ClaimLate(e) \/ Record(e) \/ Store(e)

Next ==
  \/ \E e \in Epochs : Works(e) \/ \E p \in 1 .. ROWS : Send(e, p) \/ Settle(e, p)
  \/ \E l \in lanes : LaneReads(l) \/ LaneCommits(l)
  \/ Insert \/ Alter \/ Accept

Spec == Init /\ [][Next]_vars

(* The last run goes on, its lanes too, and it is told of no failure before they end. *)
LaneEnds(p) == Settle(MAX_EPOCH, p) /\ ~\E l \in lanes : l.epoch = MAX_EPOCH /\ l.row = p
LiveSpec ==
  /\ Init /\ [][Next /\ \A p \in 1 .. ROWS : Settle(MAX_EPOCH, p) => LaneEnds(p)]_vars
  /\ WF_vars(Works(MAX_EPOCH))
  /\ WF_vars(\E l \in lanes : l.epoch = MAX_EPOCH /\ (LaneReads(l) \/ LaneCommits(l)))
  /\ SF_vars(\E p \in 1 .. ROWS : Send(MAX_EPOCH, p)) /\ SF_vars(\E p \in 1 .. ROWS : LaneEnds(p))

(* Properties *)
Present == {p \in 1 .. ROWS : delivered[p].is}
RowsMatchTheirVersion == \A p \in Present, n \in Names : delivered[p].values[n] \in {0} \cup target[n]
NoValueIsLost ==
  \A p \in Present : \A m \in rows[p] \cap Numbers(columns) : \E n \in Names : delivered[p].values[n] = m
SchemaBarrierSeparates ==
  \A k \in 2 .. Len(receipts) : \A p \in Present :
    LET version == receipts[k] IN
    IF delivered[p].after < k THEN p < version.position
    ELSE p >= version.position \/ (p \in version.replanned /\ ~version.adds)
SchemaReceiptOnce ==
  /\ \A k \in 1 .. Len(receipts) : receipts[k].number = k
  /\ \A n \in Names : receipts[Len(receipts)].read[n] # 0 => receipts[Len(receipts)].read[n] \in target[n]
  /\ UNION {target[n] : n \in Names} \subseteq UNION {Numbers(receipts[k].read) : k \in 1 .. Len(receipts)}
VersionsHaveReceipts == Len(versions) <= Len(receipts) /\ versions = SubSeq(receipts, 1, Len(versions))
NoCommitByStaleEpoch == ~stale
NoChangeAgainstTheDeclaration == \A k \in 2 .. Len(receipts) : receipts[k].allowed
EveryRowArrives ==
  (lease = MAX_EPOCH) ~> (At(MAX_EPOCH, "frozen") \/ (Len(rows) = Cardinality(Present) /\ columns = Current.read))

(* Situations that must be reached, or the properties above would say nothing: each of these is expected to fail. *)
NeverReplanned == ~\E k \in 2 .. Len(receipts) : \E p \in receipts[k].replanned : delivered[p].after >= k
NeverWaited == ~\E e \in Epochs : At(e, "looks") /\ Leased(e) /\ Waits(Current.read, columns)
NeverFollowed == ~\E k \in 2 .. Len(receipts) : receipts[k].renames # {}
NeverRepaired == ~(Len(receipts) > Len(versions) /\ \E e \in Epochs : At(e, "leased") /\ Leased(e))
=============================================================================
