---------------------------- MODULE SchemaChange ----------------------------
(***************************************************************************)
(* Columns of a source change while its rows are replicated, as the section *)
(* schema of a pipeline does it. A run plans rows, then looks at the        *)
(* source's columns. If they are not those of the newest schema version, it *)
(* begins a version: it changes the target, with a receipt in the same      *)
(* transaction, and records the version in the ledger. New columns that are *)
(* read wait until every planned batch is resolved; for a column that is    *)
(* gone, or has another type, the planned batches are read under the new    *)
(* version at once. A lane reads under the version of its wave, and refuses *)
(* other columns.                                                           *)
(*                                                                          *)
(* A column is a pair: a number, by which a rename is recognised, and a     *)
(* type, which is narrow or wide. A value is the number of its column and   *)
(* the narrowest type that stores it. <<0, 0>> stands for null, and for no  *)
(* column. A batch is one row. A run is its epoch, and may stop at any      *)
(* step; its lanes may go on. Dead letters are not replayed.                *)
(*                                                                          *)
(* Where a statement that changes the target commits by itself (MySQL), a   *)
(* change has three parts, during which a session has a lock: it is stored, *)
(* made, and gets its receipt. A run that takes over ends the session that  *)
(* has the lock, and completes a change that has no receipt.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  MAX_EPOCH,        \* the runs are 1 .. MAX_EPOCH; any of them may live while another takes over
  ROWS,             \* how many rows are inserted
  MAX_CHANGES,      \* of the source's columns
  CHANGES,          \* the kinds of these changes
  NEW_COLUMN,       \* "evolve", "discard" or "dead_letter": the policy that the runs declare for a new column,
  LAST_NEW_COLUMN,  \* and that of the last run
  OTHER_TYPE,       \* "freeze" or "dead_letter": the policy for a type that lacks values of the one before
  FREEZES,          \* whether the declaration freezes changes, so that a person has to accept the columns
  IN_PARTS,         \* whether a change of the target commits before its receipt, as in MySQL and MariaDB
  AT_MOST_ONCE,     \* whether a batch is resolved before it is sent, and never sent again
  MUTANT            \* the one rule that is switched off, or "none"

VARIABLES
  columns, last, rows, changes,                    \* the source: columns by name, the newest number, values of each row
  lease, batch, versions,                          \* the ledger: epoch, state of each planned row's batch, schema versions
  fence, receipts, target, kind, delivered,        \* the sink: its schema receipts; meaning and type of its columns; its rows
  begun,                                           \* the change that has begun and has no receipt, and whether it was made
  runs, lanes,
  accepted,                                        \* the columns that a person has accepted last
  stale                                            \* whether a transaction of an older epoch has taken effect

source == <<columns, last, rows, changes>>
ledger == <<lease, batch, versions>>
sink == <<fence, receipts, target, kind, delivered, begun>>
vars == <<source, ledger, sink, runs, lanes, accepted, stale>>

Names == {"a", "b"}
Epochs == 1 .. MAX_EPOCH
Narrow == 1
Wide == 2
None == <<0, 0>>
NoColumns == [n \in Names |-> None]
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

(* core/schema_version.py: a version has columns of the source, and a treatment of each. A refused column is read, and a
   row with a value in it becomes a dead letter: "refused" as a new column, "refused type" for its type, while the target
   keeps the column of the type before. *)
First == [number |-> 1, has |-> [n \in Names |-> IF n = "a" THEN <<1, Narrow>> ELSE None],
          treats |-> [n \in Names |-> IF n = "a" THEN "read" ELSE "none"],
          position |-> 1, adds |-> FALSE, replanned |-> {}, renames |-> {}, allowed |-> TRUE]
Refused == {"refused", "refused type"}
Stored == {"read", "refused type"}                 \* treatments of columns that the target has
NoChange == [is |-> FALSE, made |-> FALSE, version |-> First]
Locking == {"alters", "claims receipt", "completes", "closes"}  \* steps of a run whose session has the lock of columns
Stopped == [pc |-> "dead", found |-> 0, now |-> NoColumns, next |-> First]

(* The first version has been begun: nothing can happen to it that cannot to others. *)
Init ==
  /\ columns = First.has /\ last = 1 /\ rows = << >> /\ changes = 0
  /\ lease = 0 /\ batch = << >> /\ versions = <<First>>
  /\ fence = 0 /\ receipts = <<First>> /\ begun = NoChange
  /\ target = [n \in Names |-> IF n = "a" THEN {1} ELSE {}]
  /\ kind = [n \in Names |-> IF n = "a" THEN Narrow ELSE 0]
  /\ delivered = [p \in 1 .. ROWS |-> [is |-> FALSE, dead |-> FALSE, cut |-> FALSE, values |-> NoColumns,
                                    under |-> 0, after |-> 0]]
  /\ runs = [e \in Epochs |-> [Stopped EXCEPT !.pc = "new"]]
  /\ lanes = {} /\ accepted = NoColumns /\ stale = FALSE

At(e, pc) == runs[e].pc = pc
Leased(e) == lease = e
Current == versions[Len(versions)]
Planned == Len(batch)
Unresolved ==
  {p \in 1 .. Planned :
     \/ batch[p] = "planned"
     \/ batch[p] = "sent" /\ ~AT_MOST_ONCE
     \/ batch[p] # "done" /\ MUTANT = "batches_sent_at_most_once_are_waited_for"}
Numbers(has) == {has[n][1] : n \in Names} \ {0}
Policy(e) == IF FREEZES THEN "evolve" ELSE IF e = MAX_EPOCH THEN LAST_NEW_COLUMN ELSE NEW_COLUMN

(* core/column_change.py: the changes from the columns of a version to those of the source *)
Renames(has, now) ==
  {r \in Names \X Names :
     /\ has[r[1]] # None /\ now[r[1]][1] \notin Numbers(has) /\ now[r[2]][1] = has[r[1]][1] /\ has[r[2]] = None
     /\ now[r[1]] = None \/ MUTANT # "rename_unseen_if_the_name_is_given_again"}
Renamed(has, now, n) == \E r \in Renames(has, now) : r[1] = n
Dropped(has, now) == {n \in Names : has[n] # None /\ now[n] = None /\ ~Renamed(has, now, n)}
Replaced(has, now) == {n \in Names : has[n] # None /\ now[n][1] \notin {0, has[n][1]} /\ ~Renamed(has, now, n)}
Exchanged(has, now) == {n \in Replaced(has, now) : now[n][1] \in Numbers(has)}
Retyped(has, now) == {n \in Names : has[n] # None /\ now[n][1] = has[n][1] /\ now[n][2] # has[n][2]}
New(has, now) ==
  {n \in Names : /\ now[n] # None /\ ~\E r \in Renames(has, now) : r[2] = n
                 /\ has[n] = None \/ Renamed(has, now, n)}
Admitted(e, now) ==
  {n \in Names : Current.treats[n] = "refused" /\ now[n] = Current.has[n] /\ Policy(e) # "dead_letter"}
Followed(e, now) == Current.has = now /\ Admitted(e, now) = {}

IsOther(before, after) == after[2] < before[2]
OtherTypes(has, now) == {n \in Retyped(has, now) : IsOther(has[n], now[n])}

(* core/schema_change.py: what no key of the policy allows, and what the policy does not allow. A column cannot get a name
   that the target has for another one. A person accepts exactly the columns that were shown. *)
Declared(has, now) ==
  /\ ~FREEZES /\ Exchanged(has, now) = {}
  /\ OTHER_TYPE = "dead_letter" \/ OtherTypes(has, now) = {}
  /\ ~\E r \in Renames(has, now) : IsOther(has[r[1]], now[r[2]])
  /\ ~\E n \in Replaced(has, now) : IsOther(has[n], now[n])
Frozen(has, now) ==
  \/ ~Declared(has, now) /\ now # accepted
       /\ ~(MUTANT = "acceptance_of_other_columns_counts" /\ accepted # NoColumns)
  \/ \E r \in Renames(has, now) : target[r[2]] # {}

(* Columns that are read from here on. A column that is left out is not waited for. *)
Read(e, now) ==
  IF Policy(e) = "discard" THEN {} ELSE New(Current.has, now) \cup Admitted(e, now)
Waiting(e, now) ==
  {n \in Read(e, now) :
     /\ Unresolved # {} /\ MUTANT # "new_columns_do_not_wait"
     /\ n \in New(Current.has, now) \/ MUTANT # "admitted_columns_do_not_wait"}
Applies(e, now) ==
  \/ Dropped(Current.has, now) # {} \/ Replaced(Current.has, now) # {} \/ Retyped(Current.has, now) # {}
  \/ Renames(Current.has, now) # {}
  \/ (New(Current.has, now) \cup Admitted(e, now)) \ Waiting(e, now) # {}

(* core/next_schema_version.py *)
Admission(e, admitted) ==
  CASE Policy(e) = "discard" /\ MUTANT # "discarded_columns_are_added" -> "left out"
    [] Policy(e) = "dead_letter" /\ ~admitted -> "refused"
    [] OTHER -> "read"
From(renames, n) == IF \E r \in renames : r[2] = n THEN (CHOOSE r \in renames : r[2] = n)[1] ELSE n
Treatment(e, now, n) ==
  LET has == Current.has
      old == Current.treats[From(Renames(has, now), n)]
      refuses == OTHER_TYPE = "dead_letter" /\ now # accepted /\ MUTANT # "another_type_is_followed"
  IN CASE n \in Waiting(e, now) -> IF n \in Admitted(e, now) THEN old ELSE "none"
       [] n \in New(has, now) \cup Admitted(e, now) -> Admission(e, n \in Admitted(e, now))
       [] now[n] = None -> "none"
       [] n \in OtherTypes(has, now) /\ old = "read" /\ refuses -> "refused type"
       [] n \in Retyped(has, now) \cup Replaced(has, now) /\ old = "refused type" ->
            IF now[n][2] = Wide \/ ~refuses THEN "read" ELSE "refused type"
       [] OTHER -> old

NextVersion(e, now) ==
  LET waits == Waiting(e, now)
      treats == [n \in Names |-> Treatment(e, now, n)]
      new == New(Current.has, now) \ waits
  IN [number |-> Len(versions) + 1,
      has |-> [n \in Names |-> IF treats[n] = "none" THEN None ELSE now[n]],
      treats |-> treats,
      position |-> Planned + 1,
      adds |-> Read(e, now) \ waits # {},
      replanned |-> Unresolved,
      renames |-> {r \in Renames(Current.has, now) : Current.treats[r[1]] \in Stored},
      allowed |-> /\ Declared(Current.has, now) \/ now = accepted
                  /\ \A n \in new : Policy(e) = "discard" => treats[n] = "left out"
                  /\ \A n \in new : Policy(e) = "dead_letter" => treats[n] = "refused"]

(* The target after a version. A column that is renamed takes its values along; a name that means another column of the
   source from here on means both, since the rows before keep their values. A column's type is widened, never narrowed. *)
IsMoved(version, n) == \E r \in version.renames : r[1] = n
Meaning(version, n) ==
  LET old == IF IsMoved(version, n) THEN {} ELSE target[From(version.renames, n)]
  IN old \cup (IF version.treats[n] = "read" THEN {version.has[n][1]} ELSE {})
Kind(version, n) ==
  LET old == IF IsMoved(version, n) THEN 0 ELSE kind[From(version.renames, n)]
  IN IF version.treats[n] # "read" \/ (MUTANT = "the_target_is_not_widened" /\ old # 0) THEN old
     ELSE IF MUTANT = "another_type_is_followed" THEN version.has[n][2]
     ELSE Max(old, version.has[n][2])

Acquire(e) ==
  /\ At(e, "new") /\ lease < e /\ lease' = e
  /\ runs' = [f \in Epochs |->
       IF f = e THEN [runs[e] EXCEPT !.pc = "leased"]
       ELSE IF runs[f].pc \in {"works", "looks", "stores", "frozen", "ended"} THEN Stopped ELSE runs[f]]
  /\ UNCHANGED <<source, batch, versions, sink, lanes, accepted, stale>>

(* What has a receipt is settled. What has none is planned again, or was sent at most once: its lane may live, until the
   next run has fenced the sink. *)
Settled(p, fenced) ==
  CASE batch[p] \notin {"sent", "unconfirmed"} -> batch[p]
    [] delivered[p].is -> "done"
    [] ~AT_MOST_ONCE -> "planned"
    [] OTHER -> IF fenced THEN "lost" ELSE "unconfirmed"

(* Fence the sink, and settle by its receipts; then record the versions that only the sink has. *)
Fence(e) ==
  /\ At(e, "leased") /\ ~IN_PARTS
  /\ IF fence < e /\ Leased(e)
     THEN /\ fence' = e /\ runs' = [runs EXCEPT ![e].pc = "works"]
          /\ batch' = [p \in 1 .. Planned |-> Settled(p, TRUE)]
          /\ versions' = IF MUTANT = "versions_of_the_sink_not_read" THEN versions
                         ELSE versions \o SubSeq(receipts, Len(versions) + 1, Len(receipts))
          /\ lanes' = IF MUTANT = "lanes_are_not_fenced" THEN lanes ELSE {}
     ELSE /\ fence' = Max(e, fence) /\ runs' = [runs EXCEPT ![e] = Stopped]
          /\ UNCHANGED <<batch, versions, lanes>>
  /\ UNCHANGED <<source, lease, receipts, target, kind, delivered, begun, accepted, stale>>

(* The same where a change of the target commits by itself: the fence is raised, the lock is taken from the session that
   has it, and a change that has begun is completed, before the ledger's batches are settled. *)
Raise(e) ==
  /\ IN_PARTS /\ At(e, "leased")
  /\ IF fence < e /\ Leased(e)
     THEN fence' = e /\ runs' = [runs EXCEPT ![e].pc = "finishes"] /\ lanes' = {}
     ELSE fence' = Max(e, fence) /\ runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED lanes
  /\ UNCHANGED <<source, ledger, receipts, target, kind, delivered, begun, accepted, stale>>

Finish(e) ==
  LET left == ~begun.is \/ MUTANT = "begun_changes_are_left"
      again == ~begun.made \/ MUTANT = "a_change_that_was_made_is_made_again"
      pc == IF fence # e THEN "dead" ELSE IF left THEN "settles" ELSE IF again THEN "completes" ELSE "closes"
      ends(f) == f # e /\ fence = e /\ runs[f].pc \in Locking /\ MUTANT # "the_lock_is_not_taken_over"
  IN
  /\ At(e, "finishes")
  /\ runs' = [f \in Epochs |->
       IF ends(f) THEN Stopped ELSE IF f = e THEN [runs[e] EXCEPT !.pc = pc, !.next = begun.version] ELSE runs[f]]
  /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

SettleAll(e) ==
  /\ At(e, "settles") /\ Leased(e) /\ runs' = [runs EXCEPT ![e].pc = "works", ![e].next = First]
  /\ batch' = [p \in 1 .. Planned |-> Settled(p, TRUE)]
  /\ versions' = versions \o SubSeq(receipts, Len(versions) + 1, Len(receipts))
  /\ UNCHANGED <<source, lease, sink, lanes, accepted, stale>>

(* Find new rows, then look at the columns. A run that sends at most once does so between its waves. *)
Plan(e) ==
  /\ At(e, "works") /\ Leased(e)
  /\ ~(AT_MOST_ONCE /\ \E p \in 1 .. Planned : batch[p] = "sent")
  /\ Len(rows) > Planned \/ ~Followed(e, columns)
  /\ runs' = [runs EXCEPT ![e].pc = "looks", ![e].found = Len(rows),
                          ![e].now = IF MUTANT = "columns_looked_at_before_planning" THEN columns ELSE NoColumns]
  /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

FindLate(e) ==
  /\ MUTANT = "columns_looked_at_before_planning" /\ At(e, "looks") /\ runs[e].found < Len(rows)
  /\ runs' = [runs EXCEPT ![e].found = Len(rows)]
  /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

(* A run of which a batch is unconfirmed begins no version: its lane may still write the columns of the version before. *)
Look(e) ==
  LET now == IF runs[e].now = NoColumns THEN columns ELSE runs[e].now
      goes(pc) == runs' = [runs EXCEPT ![e].pc = pc, ![e].now = NoColumns]
  IN /\ At(e, "looks") /\ Leased(e)
     /\ IF Followed(e, now) THEN goes("stores")
        ELSE IF Frozen(Current.has, now) THEN goes("frozen")
        ELSE IF Waiting(e, now) # {} /\ (~Applies(e, now) \/ MUTANT = "all_changes_wait") THEN goes("works")
        ELSE IF /\ \E p \in 1 .. Planned : batch[p] = "unconfirmed"
                /\ MUTANT # "versions_begin_beside_unconfirmed_batches" THEN goes("ended")
        ELSE runs' = [runs EXCEPT ![e].pc = "applies", ![e].now = now, ![e].next = NextVersion(e, now)]
     /\ UNCHANGED <<source, ledger, sink, lanes, accepted, stale>>

(* One transaction: claim the version's receipt under the fence, and change the target. A value that a column's type does
   not store would be cut. *)
Cut(value, type) == <<value[1], Min(value[2], type)>>
Change(version) ==
  /\ target' = [n \in Names |-> Meaning(version, n)]
  /\ kind' = [n \in Names |-> Kind(version, n)]
  /\ delivered' = [p \in 1 .. ROWS |->
       IF delivered[p].dead THEN delivered[p]
       ELSE LET moved == [n \in Names |->
                  IF IsMoved(version, n) THEN None ELSE delivered[p].values[From(version.renames, n)]]
            IN [delivered[p] EXCEPT !.values = [n \in Names |-> Cut(moved[n], Kind(version, n))],
                                    !.cut = @ \/ \E n \in Names : moved[n][2] > Kind(version, n)]]

Apply(e) ==
  LET version == runs[e].next IN
  /\ At(e, "applies") /\ ~IN_PARTS
  /\ IF (fence = e \/ MUTANT = "change_is_not_fenced") /\ version.number = Len(receipts) + 1
     THEN /\ Change(version)
          /\ receipts' = IF MUTANT = "receipt_after_the_change" THEN receipts ELSE Append(receipts, version)
          /\ runs' = [runs EXCEPT ![e].pc = IF MUTANT = "receipt_after_the_change" THEN "claims" ELSE "records"]
          /\ stale' = (stale \/ e < fence)
     ELSE runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<receipts, target, kind, delivered, stale>>
  /\ UNCHANGED <<source, ledger, fence, begun, lanes, accepted>>

(* The three parts of a change that commits by itself. Only the first and the last compare the epochs. A change by an older
   run is one of a stale epoch once a newer run has the lock. *)
Begin(e) ==
  /\ IN_PARTS /\ At(e, "applies") /\ ~\E f \in Epochs : runs[f].pc \in Locking
  /\ IF fence = e /\ runs[e].next.number = Len(receipts) + 1 /\ ~begun.is
     THEN begun' = [is |-> TRUE, made |-> FALSE, version |-> runs[e].next] /\ runs' = [runs EXCEPT ![e].pc = "alters"]
     ELSE runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED begun
  /\ UNCHANGED <<source, ledger, fence, receipts, target, kind, delivered, lanes, accepted, stale>>

Make(e) ==
  /\ At(e, "alters") \/ At(e, "completes")
  /\ Change(runs[e].next) /\ begun' = [begun EXCEPT !.made = TRUE]
  /\ runs' = [runs EXCEPT ![e].pc = IF @ = "alters" THEN "claims receipt" ELSE "closes"]
  /\ stale' = (stale \/ \E f \in Epochs : f > e /\ runs[f].pc \notin {"new", "leased", "finishes", "dead"})
  /\ UNCHANGED <<source, ledger, fence, receipts, lanes, accepted>>

Claim(e) ==
  /\ At(e, "claims receipt") \/ At(e, "closes")
  /\ IF fence = e
     THEN /\ receipts' = Append(receipts, runs[e].next) /\ begun' = NoChange
          /\ runs' = [runs EXCEPT ![e].pc = IF @ = "closes" THEN "settles" ELSE "records"]
     ELSE runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<receipts, begun>>
  /\ UNCHANGED <<source, ledger, fence, target, kind, delivered, lanes, accepted, stale>>

ClaimLate(e) ==
  /\ At(e, "claims") /\ receipts' = Append(receipts, runs[e].next) /\ runs' = [runs EXCEPT ![e].pc = "records"]
  /\ UNCHANGED <<source, ledger, fence, target, kind, delivered, begun, lanes, accepted, stale>>

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
  /\ lanes' = lanes \cup {[epoch |-> e, row |-> p, under |-> Len(versions), values |-> NoColumns, pc |-> "reads"]}
  /\ UNCHANGED <<source, lease, versions, sink, runs, accepted, stale>>

(* One statement reads a row by the names of its columns; those that the version reads must be the version's. *)
Value(p, number) == IF \E v \in rows[p] : v[1] = number THEN CHOOSE v \in rows[p] : v[1] = number ELSE None
IsSame(now, has) ==
  \/ now = has
  \/ MUTANT = "columns_compared_by_name" /\ now # None
  \/ MUTANT = "types_not_compared" /\ now[1] = has[1]
  \/ MUTANT = "columns_not_compared"
LaneReads(l) ==
  LET version == versions[l.under]
      reads == {n \in Names :
        \/ version.treats[n] \in {"read"} \cup Refused
        \/ version.treats[n] = "left out" /\ MUTANT = "left_out_columns_are_sent"}
      fits == \A n \in reads : IsSame(columns[n], version.has[n])
      values == [n \in Names |-> IF n \in reads THEN Value(l.row, columns[n][1]) ELSE None]
  IN /\ l.pc = "reads"
     /\ lanes' = (lanes \ {l}) \cup IF fits THEN {[l EXCEPT !.pc = "writes", !.values = values]} ELSE {}
     /\ UNCHANGED <<source, ledger, sink, runs, accepted, stale>>

(* One transaction: claim the receipt under the fence, and write the columns of the version, or the dead letter, which has
   all columns that were read. *)
LaneCommits(l) ==
  LET version == versions[l.under]
      refused == {n \in Names : version.treats[n] \in Refused}
      dead == /\ \E n \in refused : l.values[n] # None
              /\ MUTANT # "refused_rows_are_delivered"
  IN
  /\ l.pc = "writes" /\ lanes' = lanes \ {l}
  /\ IF /\ fence = l.epoch \/ MUTANT = "lanes_are_not_fenced"
        /\ ~delivered[l.row].is
        /\ \A n \in Names : version.treats[n] = "read" => target[n] # {} \/ MUTANT = "missing_columns_are_left_out"
     THEN /\ delivered' = [delivered EXCEPT ![l.row] =
               [is |-> TRUE, dead |-> dead, under |-> l.under, after |-> Len(receipts),
                cut |-> ~dead /\ \E n \in Names \ refused : target[n] # {} /\ l.values[n][2] > kind[n],
                values |-> [n \in Names |->
                  IF n \in refused /\ (~dead \/ MUTANT = "dead_letters_lack_the_refused_column") THEN None
                  ELSE IF dead THEN l.values[n] ELSE IF target[n] = {} THEN None ELSE Cut(l.values[n], kind[n])]]]
          /\ stale' = (stale \/ l.epoch < fence)
     ELSE UNCHANGED <<delivered, stale>>
  /\ UNCHANGED <<source, ledger, fence, receipts, target, kind, begun, runs, accepted>>

(* A wave ends, even if its lane still lives. *)
Settle(e, p) ==
  /\ At(e, "works") /\ Leased(e) /\ p \in 1 .. Planned /\ batch[p] = "sent"
  /\ batch' = [batch EXCEPT ![p] = Settled(p, FALSE)]
  /\ UNCHANGED <<source, lease, versions, sink, runs, lanes, accepted, stale>>

(* The world *)
Insert ==
  /\ Len(rows) < ROWS /\ rows' = Append(rows, {columns[n] : n \in Names} \ {None})
  /\ UNCHANGED <<columns, last, changes, ledger, sink, runs, lanes, accepted, stale>>

(* A type that lacks values of the one before cuts the source's values. An update stores a value that needs the type. *)
Become(now) ==
  /\ columns' = now
  /\ last' = Max(last, Max(now["a"][1], now["b"][1]))
  /\ rows' = [p \in 1 .. Len(rows) |->
       {IF \E n \in Names : now[n][1] = v[1] THEN Cut(v, (CHOOSE w \in {now[n] : n \in Names} : w[1] = v[1])[2]) ELSE v :
          v \in rows[p]}]
Alter ==
  /\ changes < MAX_CHANGES /\ lease < MAX_EPOCH /\ changes' = changes + 1
  /\ \/ /\ "update" \in CHANGES /\ UNCHANGED <<columns, last>>
        /\ \E p \in 1 .. Len(rows), n \in Names :
             /\ Value(p, columns[n][1]) \notin {None, columns[n]}
             /\ rows' = [rows EXCEPT ![p] = (@ \ {Value(p, columns[n][1])}) \cup {columns[n]}]
     \/ \E n \in Names :
          LET is(number, type) == Become([columns EXCEPT ![n] = <<number, type>>]) IN
          \/ "add" \in CHANGES /\ columns[n] = None /\ is(last + 1, Narrow)
          \/ "drop" \in CHANGES /\ columns[n] # None /\ is(0, 0)
          \/ "replace" \in CHANGES /\ columns[n] # None /\ is(last + 1, Narrow)   \* dropped and added
          \/ "widen" \in CHANGES /\ columns[n][2] = Narrow /\ is(columns[n][1], Wide)
          \/ "narrow" \in CHANGES /\ columns[n][2] = Wide /\ is(columns[n][1], Narrow)
          \/ \E m \in Names \ {n} :                                               \* renamed, or exchanged
               "rename" \in CHANGES /\ columns[n] # None /\ Become([columns EXCEPT ![n] = columns[m], ![m] = columns[n]])
  /\ UNCHANGED <<ledger, sink, runs, lanes, accepted, stale>>

Accept ==
  /\ FREEZES /\ accepted' = columns
  /\ UNCHANGED <<source, ledger, sink, runs, lanes, stale>>

Works(e) ==
  \/ Acquire(e) \/ Fence(e) \/ Plan(e) \/ FindLate(e) \/ Look(e) \/ Apply(e) \/ ClaimLate(e) \/ Record(e) \/ Store(e)
  \/ Raise(e) \/ Finish(e) \/ SettleAll(e) \/ Begin(e) \/ Make(e) \/ Claim(e)

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

(* Properties. A dead letter counts as present. *)
Present == {p \in 1 .. ROWS : delivered[p].is}
Values(p) == {delivered[p].values[n] : n \in Names} \ {None}
NumbersOf(values) == {v[1] : v \in values}
Treated(p, treatments) ==
  LET version == versions[delivered[p].under]
  IN {version.has[n][1] : n \in {m \in Names : version.treats[m] \in treatments}}
RowsMatchTheirVersion ==
  \A p \in Present :
    /\ NumbersOf(Values(p)) = NumbersOf(rows[p]) \cap Treated(p, {"read"} \cup (IF delivered[p].dead THEN Refused ELSE {}))
    /\ delivered[p].dead <=> NumbersOf(rows[p]) \cap Treated(p, Refused) # {}
    /\ ~delivered[p].dead => \A n \in Names : delivered[p].values[n][1] \in {0} \cup target[n]
NoValueIsLost ==
  \A p \in Present :
    (NumbersOf(rows[p]) \cap Numbers(columns)) \ Treated(p, {"left out"}) \subseteq NumbersOf(Values(p))
(* No value was cut, and the target's column stores the values of each type that the source's column ever had. *)
NoSilentNarrowing ==
  /\ ~\E p \in Present : delivered[p].cut
  /\ \A k \in 1 .. Len(receipts) : \A n, m \in Names :
       receipts[k].treats[n] = "read" /\ receipts[k].has[n][1] \in target[m] => kind[m] >= receipts[k].has[n][2]
SchemaBarrierSeparates ==
  \A k \in 2 .. Len(receipts) : \A p \in Present :
    LET version == receipts[k] IN
    IF delivered[p].after < k THEN p < version.position
    ELSE p >= version.position \/ (p \in version.replanned /\ ~version.adds)
Made == IF begun.made THEN Append(receipts, begun.version) ELSE receipts
SchemaReceiptOnce ==
  /\ \A k \in 1 .. Len(Made) : Made[k].number = k
  /\ LET version == Made[Len(Made)] IN
     \A n \in Names : version.treats[n] = "read" => version.has[n][1] \in target[n]
  /\ UNION {target[n] : n \in Names} \subseteq UNION {Numbers(Made[k].has) : k \in 1 .. Len(Made)}
VersionsHaveReceipts == Len(versions) <= Len(receipts) /\ versions = SubSeq(receipts, 1, Len(versions))
NoCommitByStaleEpoch == ~stale
NoChangeAgainstTheDeclaration == \A k \in 2 .. Len(receipts) : receipts[k].allowed
EveryRowArrives ==
  (lease = MAX_EPOCH) ~>
    (At(MAX_EPOCH, "frozen") \/ (Len(rows) = Cardinality(Present) /\ Followed(MAX_EPOCH, columns)))
EveryRowArrivesInParts == EveryRowArrives
EveryRowIsSent ==
  (lease = MAX_EPOCH) ~>
    (runs[MAX_EPOCH].pc \in {"frozen", "ended"}
       \/ (Len(rows) = Planned /\ Followed(MAX_EPOCH, columns) /\ \A p \in 1 .. Planned : batch[p] # "planned"))

(* Situations that must be reached, or the properties above would say nothing: each of these is expected to fail. *)
NeverReplanned == ~\E k \in 2 .. Len(receipts) : \E p \in receipts[k].replanned : delivered[p].after >= k
NeverWaited == ~\E e \in Epochs : At(e, "looks") /\ Leased(e) /\ Waiting(e, columns) # {}
NeverFollowed == ~\E k \in 2 .. Len(receipts) : receipts[k].renames # {}
NeverRepaired == ~(Len(receipts) > Len(versions) /\ \E e \in Epochs : At(e, "leased") /\ Leased(e))
NeverWidened == ~\E p \in Present : Values(p) = {<<1, Wide>>}
NeverLeftOut == ~\E p \in Present : NumbersOf(rows[p]) \cap Treated(p, {"left out"}) # {}
NeverRefused == ~\E p \in Present : delivered[p].dead /\ NumbersOf(rows[p]) \cap Treated(p, {"refused"}) # {}
NeverOfARefusedType ==
  ~\E p \in Present : delivered[p].dead /\ NumbersOf(rows[p]) \cap Treated(p, {"refused type"}) # {}
NeverReadAgain ==
  ~\E k \in 2 .. Len(receipts), n \in Names : receipts[k - 1].treats[n] = "refused type" /\ receipts[k].treats[n] = "read"
NeverAdmitted ==
  ~\E k \in 2 .. Len(receipts), n \in Names : receipts[k - 1].treats[n] = "refused" /\ receipts[k].treats[n] = "read"
NeverAdmittedLate ==
  ~\E e \in Epochs : At(e, "looks") /\ Leased(e) /\ Admitted(e, columns) \cap Waiting(e, columns) # {}
NeverCompleted == ~\E e \in Epochs : At(e, "closes") /\ begun.made
NeverBegunInVain == ~\E e \in Epochs : At(e, "completes") /\ ~begun.made
NeverUnconfirmed == ~\E e \in Epochs : At(e, "ended")
NeverLost == ~\E p \in 1 .. Planned : batch[p] = "lost"
=============================================================================
