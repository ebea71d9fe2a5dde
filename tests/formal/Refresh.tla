------------------------------ MODULE Refresh ------------------------------
(***************************************************************************)
(* A full refresh, as source.mode full and sink.mode replace do it. A run   *)
(* exports a snapshot of the source, begins a generation in the ledger, and *)
(* creates the staging table of the generation behind the fence. Lanes read *)
(* pages under the snapshot and stage them, each with a receipt. Once every *)
(* page has a verdict, one batch publishes: its transaction compares        *)
(* receipts and staged rows, replaces the target's rows and claims its      *)
(* receipt. If rows would get fewer, that batch is held for a person first. *)
(*                                                                          *)
(* A run is its epoch. It may stop at any step, and lanes that it started   *)
(* may go on; a run whose lease is lost can only end what it has begun in   *)
(* the sink. The sink's server may crash, which empties the staging table.  *)
(*                                                                          *)
(* Tables of files differ in two points. What is staged are files that the  *)
(* receipts describe; a lost file is like a crash of the server. The commit *)
(* is refused if another writer was faster, and tried again: each try is    *)
(* the one transaction of Publish. Others may add rows between Ask and      *)
(* Publish in any sink, so the publishing transaction compares again.       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  MAX_EPOCH,    \* the runs are 1 .. MAX_EPOCH; any of them may live while another takes over
  MAX_VERSION,  \* the source is replaced as a whole this often
  MAX_CRASHES,  \* of the sink's server
  MAX_SKIPS,    \* of pages, by a person
  MAX_OTHERS,   \* rows that other writers add to the target
  MUTANT        \* the one rule that is switched off, or "none"

VARIABLES
  source,       \* version of the source's rows
  lease,        \* the ledger: epoch of the lease,
  generation, extent, page, publication,          \* the partition's generation, its refresh, and the states of its batches
  fence, staging, receipts, target, others,       \* the sink; rows of other writers are only counted
  runs, lanes,
  released,     \* generations that a person has let publish
  stale,        \* whether a transaction of an older epoch has committed after a newer fence
  faults        \* crashes of the sink's server, pages skipped, and rows added by others

ledger == <<lease, generation, extent, page, publication>>
sink == <<fence, staging, receipts, target, others>>
vars == <<source, ledger, sink, runs, lanes, released, stale, faults>>

Epochs == 1 .. MAX_EPOCH
Pages(version) == 1 + (version % 2)
AllPages == 1 .. 2
NoRefresh == [by |-> 0, pages |-> 0, questioned |-> FALSE]
NoTable == [generation |-> 0, rows |-> {}]
Unplanned == [p \in AllPages |-> "new"]

Init ==
  /\ source = 1
  /\ lease = 0 /\ generation = 1 /\ extent = NoRefresh /\ page = Unplanned /\ publication = "new"
  /\ fence = 0 /\ staging = NoTable /\ receipts = {} /\ others = 0
  /\ target = {[generation |-> 0, page |-> 1, version |-> 0]}
  /\ runs = [e \in Epochs |-> [pc |-> "new", snapshot |-> 0, begun |-> FALSE, generation |-> 0]]
  /\ lanes = {} /\ released = {} /\ stale = FALSE /\ faults = [crashes |-> 0, skips |-> 0, others |-> 0]

Max(a, b) == IF a > b THEN a ELSE b
At(e, pc) == runs[e].pc = pc
Goes(e, pc) == runs' = [runs EXCEPT ![e].pc = pc]
Leased(e) == lease = e \/ MUTANT = "ledger_takes_stale_epochs"
Of(g, p) == {r \in receipts : r.generation = g /\ r.page = p}
Receipts(g) == {r \in receipts : r.generation = g /\ r.page # 0}
Stopped == [pc |-> "dead", snapshot |-> 0, begun |-> FALSE, generation |-> 0]

(* The checks of the publishing transaction: every page has a receipt, and what the receipts count is staged. *)
Whole(g, pages) ==
  /\ \A p \in 1 .. pages : Of(g, p) # {} \/ MUTANT = "skipped_counts_as_staged"
  /\ MUTANT = "counts_not_compared"
       \/ (staging.generation = g /\ Cardinality(staging.rows) = Cardinality(Receipts(g)))

(* Whether the target would get fewer rows, and no person has let this generation publish. *)
Shrinks(g) == g \notin released /\ Cardinality(Receipts(g)) < Cardinality(target) + others

Resolved == \A p \in 1 .. extent.pages : page[p] \in {"done", "void"}
Holds(e) == extent.by = e /\ runs[e].snapshot # 0

(* core/refresh.py, next_step *)
Step(e) ==
  IF publication = "held" THEN "wait"
  ELSE IF /\ extent # NoRefresh /\ publication \notin {"done", "void"}
          /\ \/ Holds(e) \/ MUTANT = "refresh_of_another_process_is_continued"
             \/ extent.questioned /\ (Whole(generation, extent.pages) \/ MUTANT = "lost_staging_is_continued")
       THEN "continue"
  ELSE IF runs[e].begun THEN "nothing" ELSE "begin"

Settled(state, p) ==
  IF state # "sent" THEN state
  ELSE IF Of(generation, p) # {} \/ MUTANT = "begun_counts_as_done" THEN "done" ELSE "planned"

(* Of the runs before, none gets the ledger's leave any more. *)
Acquire(e) ==
  /\ At(e, "new") /\ lease < e /\ lease' = e
  /\ MUTANT = "snapshot_before_the_lease" => runs[e].snapshot # 0
  /\ runs' = [f \in Epochs |->
       IF f = e THEN [runs[e] EXCEPT !.pc = "leased"]
       ELSE IF runs[f].pc \in {"works", "done"} /\ MUTANT # "ledger_takes_stale_epochs" THEN Stopped ELSE runs[f]]
  /\ UNCHANGED <<source, generation, extent, page, publication, sink, lanes, released, stale, faults>>

(* Fence the sink, then settle what has a receipt, and plan the rest again. *)
Fence(e) ==
  /\ At(e, "leased")
  /\ IF fence < e /\ Leased(e)
     THEN /\ fence' = e /\ Goes(e, "works")
          /\ lanes' = IF MUTANT = "lanes_are_not_fenced" THEN lanes ELSE {}
          /\ page' = [p \in AllPages |-> Settled(page[p], p)]
          /\ publication' = Settled(publication, 0)
     ELSE /\ fence' = Max(e, fence) /\ runs' = [runs EXCEPT ![e] = Stopped]
          /\ UNCHANGED <<lanes, page, publication>>
  /\ UNCHANGED <<source, lease, generation, extent, staging, receipts, target, others, released, stale, faults>>

(* Export a snapshot, and begin a generation; one in which nothing was planned is used. *)
SnapshotOf(e) == IF MUTANT = "snapshot_before_the_lease" THEN runs[e].snapshot ELSE source

Begin(e) ==
  /\ At(e, "works") /\ Leased(e) /\ Step(e) = "begin"
  /\ IF MUTANT = "continued_under_a_new_snapshot" /\ extent # NoRefresh /\ publication = "new"
     THEN /\ extent' = [extent EXCEPT !.by = e] /\ UNCHANGED <<generation, page, publication>>
          /\ runs' = [runs EXCEPT ![e].snapshot = source, ![e].begun = TRUE]
     ELSE /\ generation' = IF (page = Unplanned /\ publication = "new") \/ MUTANT = "generation_is_used_again"
                           THEN generation ELSE generation + 1
          /\ extent' = [by |-> e, pages |-> Pages(SnapshotOf(e)), questioned |-> FALSE]
          /\ page' = Unplanned /\ publication' = "new"
          /\ runs' = [runs EXCEPT ![e] = [pc |-> "staging", snapshot |-> SnapshotOf(e), begun |-> TRUE,
                                          generation |-> generation']]
  /\ UNCHANGED <<source, lease, sink, lanes, released, stale, faults>>

ExportEarly(e) ==
  /\ MUTANT = "snapshot_before_the_lease" /\ At(e, "new") /\ runs[e].snapshot = 0
  /\ runs' = [runs EXCEPT ![e].snapshot = source]
  /\ UNCHANGED <<source, ledger, sink, lanes, released, stale, faults>>

(* Drop the pipeline's staging tables, and create that of the generation. *)
Prepare(e) ==
  /\ At(e, "staging")
  /\ IF fence = e \/ MUTANT = "staging_prepared_without_the_fence"
     THEN staging' = [generation |-> runs[e].generation, rows |-> {}] /\ Goes(e, "works")
     ELSE runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED staging
  /\ UNCHANGED <<source, ledger, fence, receipts, target, others, lanes, released, stale, faults>>

Plan(e) ==
  /\ At(e, "works") /\ Leased(e) /\ Step(e) = "continue"
  /\ \E p \in 1 .. extent.pages : page[p] = "new"
  /\ page' = [p \in AllPages |-> IF p <= extent.pages /\ page[p] = "new" THEN "planned" ELSE page[p]]
  /\ UNCHANGED <<source, lease, generation, extent, publication, sink, runs, lanes, released, stale, faults>>

PlanPublication(e) ==
  /\ At(e, "works") /\ Leased(e) /\ Step(e) = "continue" /\ publication = "new"
  /\ Resolved \/ (MUTANT = "publication_planned_early" /\ page # Unplanned)
  /\ publication' = "planned"
  /\ UNCHANGED <<source, lease, generation, extent, page, sink, runs, lanes, released, stale, faults>>

(* Send a page, which a lane reads under the snapshot of the run's process. Without one the run fails. *)
Send(e, p) ==
  /\ At(e, "works") /\ Leased(e) /\ Step(e) = "continue" /\ p <= extent.pages /\ page[p] = "planned"
  /\ IF runs[e].snapshot = 0
     THEN runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<page, lanes>>
     ELSE /\ page' = [page EXCEPT ![p] = "sent"]
          /\ lanes' = lanes \cup {[epoch |-> e, generation |-> generation, page |-> p, version |-> runs[e].snapshot]}
          /\ UNCHANGED runs
  /\ UNCHANGED <<source, lease, generation, extent, publication, sink, released, stale, faults>>

(* One transaction: claim the receipt under the fence, and stage the rows. Refused, the lane leaves nothing. *)
LaneCommits(l) ==
  /\ lanes' = lanes \ {l}
  /\ IF /\ fence = l.epoch \/ MUTANT = "lanes_are_not_fenced"
        /\ Of(l.generation, l.page) = {} /\ staging.generation = l.generation
     THEN /\ receipts' = receipts \cup {[generation |-> l.generation, page |-> l.page]}
          /\ staging' = [staging EXCEPT !.rows = @ \cup
               {[generation |-> l.generation, page |-> l.page,
                 version |-> IF MUTANT = "lanes_read_without_the_snapshot" THEN source ELSE l.version]}]
          /\ stale' = (stale \/ l.epoch < fence)
     ELSE UNCHANGED <<receipts, staging, stale>>
  /\ UNCHANGED <<source, ledger, fence, target, others, runs, released, faults>>

(* A wave ends: what has a receipt is settled; what has none is planned again, even if its lane still lives. *)
Settle(e, p) ==
  /\ At(e, "works") /\ Leased(e) /\ page[p] = "sent"
  /\ page' = [page EXCEPT ![p] = Settled(@, p)]
  /\ UNCHANGED <<source, lease, generation, extent, publication, sink, runs, lanes, released, stale, faults>>

(* Hold the publishing batch if rows would get fewer and nobody was asked; else begin it. *)
Ask(e) ==
  /\ At(e, "works") /\ Leased(e) /\ Step(e) = "continue" /\ publication = "planned"
  /\ IF /\ ~extent.questioned /\ MUTANT # "nobody_is_asked"
        /\ Shrinks(generation)
     THEN /\ publication' = "held" /\ extent' = [extent EXCEPT !.questioned = TRUE] /\ UNCHANGED runs
     ELSE /\ publication' = "sent" /\ UNCHANGED extent
          /\ runs' = [runs EXCEPT ![e].pc = "publishing", ![e].generation = generation]
  /\ UNCHANGED <<source, lease, generation, page, sink, lanes, released, stale, faults>>

(* One transaction, which locks fence and target; a refresh that is not whole halts the run. *)
Publish(e) ==
  LET g == runs[e].generation IN
  /\ At(e, "publishing")
  /\ IF fence # e /\ MUTANT # "publication_is_not_fenced"
     THEN runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<staging, receipts, target, others, stale>>
     ELSE IF Of(g, 0) # {}
     THEN Goes(e, "works") /\ UNCHANGED <<staging, receipts, target, others, stale>>
     ELSE IF ~Whole(g, extent.pages)
     THEN runs' = [runs EXCEPT ![e] = Stopped] /\ UNCHANGED <<staging, receipts, target, others, stale>>
     ELSE IF Shrinks(g) /\ MUTANT \notin {"nobody_is_asked", "counted_before_the_transaction"}
     THEN Goes(e, "works") /\ UNCHANGED <<staging, receipts, target, others, stale>>
     ELSE IF MUTANT = "claimed_before_the_rows_are_replaced"
     THEN /\ receipts' = receipts \cup {[generation |-> g, page |-> 0]} /\ runs' = [runs EXCEPT ![e].pc = "claimed"]
          /\ UNCHANGED <<staging, target, others, stale>>
     ELSE IF MUTANT = "emptied_before_the_rows_are_inserted" /\ target # {}
     THEN target' = {} /\ UNCHANGED <<staging, receipts, others, stale, runs>>
     ELSE /\ target' = staging.rows /\ others' = 0 /\ staging' = NoTable /\ Goes(e, "works")
          /\ receipts' = receipts \cup {[generation |-> g, page |-> 0]}
          /\ stale' = (stale \/ e < fence)
  /\ UNCHANGED <<source, ledger, fence, lanes, released, faults>>

ReplaceLate(e) ==
  /\ At(e, "claimed") /\ staging.generation = runs[e].generation
  /\ target' = staging.rows /\ others' = 0 /\ staging' = NoTable /\ Goes(e, "works")
  /\ UNCHANGED <<source, ledger, fence, receipts, lanes, released, stale, faults>>

SettlePublication(e) ==
  /\ At(e, "works") /\ Leased(e) /\ publication = "sent"
  /\ publication' = Settled(publication, 0)
  /\ UNCHANGED <<source, lease, generation, extent, page, sink, runs, lanes, released, stale, faults>>

Finish(e) ==
  /\ At(e, "works") /\ Leased(e) /\ publication # "sent"
  /\ Step(e) \in {"wait", "nothing"}
  /\ Goes(e, "done")
  /\ UNCHANGED <<source, ledger, sink, lanes, released, stale, faults>>

(* Persons *)
Release ==
  /\ publication = "held" /\ publication' = "planned" /\ released' = released \cup {generation}
  /\ UNCHANGED <<source, lease, generation, extent, page, sink, runs, lanes, stale, faults>>

Skip ==
  /\ publication = "held" /\ publication' = "void"
  /\ UNCHANGED <<source, lease, generation, extent, page, sink, runs, lanes, released, stale, faults>>

SkipPage(p) ==
  /\ faults.skips < MAX_SKIPS /\ lease < MAX_EPOCH /\ page[p] = "planned"
  /\ page' = [page EXCEPT ![p] = "void"] /\ faults' = [faults EXCEPT !.skips = @ + 1]
  /\ UNCHANGED <<source, lease, generation, extent, publication, sink, runs, lanes, released, stale>>

(* The world. Nothing fails in the last run, so that it has to end well. *)
Change == source < MAX_VERSION /\ source' = source + 1
          /\ UNCHANGED <<ledger, sink, runs, lanes, released, stale, faults>>

Crash ==
  /\ faults.crashes < MAX_CRASHES /\ lease < MAX_EPOCH /\ staging.rows # {}
  /\ staging' = [staging EXCEPT !.rows = {}] /\ faults' = [faults EXCEPT !.crashes = @ + 1]
  /\ UNCHANGED <<source, ledger, fence, receipts, target, others, runs, lanes, released, stale>>

OthersWrite ==
  /\ faults.others < MAX_OTHERS /\ others' = others + 1 /\ faults' = [faults EXCEPT !.others = @ + 1]
  /\ UNCHANGED <<source, ledger, fence, staging, receipts, target, runs, lanes, released, stale>>

Works(e) ==
  \/ ExportEarly(e) \/ Acquire(e) \/ Fence(e) \/ Begin(e) \/ Prepare(e) \/ Plan(e) \/ PlanPublication(e)
  \/ \E p \in AllPages : Send(e, p)
  \/ Ask(e) \/ Publish(e) \/ ReplaceLate(e) \/ SettlePublication(e) \/ Finish(e)

Next ==
  \/ \E e \in Epochs : Works(e) \/ \E p \in AllPages : Settle(e, p)
  \/ \E l \in lanes : LaneCommits(l)
  \/ Release \/ Skip \/ \E p \in AllPages : SkipPage(p)
  \/ Change \/ Crash \/ OthersWrite

Spec == Init /\ [][Next]_vars

(* The last run goes on, its lanes too, and it is told of no failure before they end. *)
LaneEnds(e, p) == Settle(e, p) /\ ~\E l \in lanes : l.epoch = e /\ l.page = p /\ l.generation = generation
LastRunGoesOn ==
  \/ Works(MAX_EPOCH) \/ \E p \in AllPages : LaneEnds(MAX_EPOCH, p)
  \/ \E l \in lanes : l.epoch = MAX_EPOCH /\ LaneCommits(l)
LiveSpec ==
  /\ Init /\ WF_vars(LastRunGoesOn)
  /\ [][Next /\ \A p \in AllPages : Settle(MAX_EPOCH, p) => LaneEnds(MAX_EPOCH, p)]_vars

(* Properties *)
Generations(rows) == {r.generation : r \in rows}
ReadersSeeOneGeneration == \A x, y \in target : x.generation = y.generation /\ x.version = y.version
PublishedGenerationIsComplete ==
  \E v \in 0 .. MAX_VERSION : {r.page : r \in {r \in target : r.version = v}} = 1 .. Pages(v)
PublicationWaitsForRows == publication \in {"held", "sent", "done"} => Resolved
NoCommitByStaleEpoch == ~stale
PublicationHasReceipt == publication = "done" => Of(generation, 0) # {}
ReceiptHasItsRows == \A r \in receipts, x \in target : r.page = 0 => x.generation >= r.generation
DoneIsPublishedOrHeld ==
  \A e \in Epochs : At(e, "done") /\ lease = e => \/ publication \in {"held", "planned", "void"}
                                                \/ Generations(target) = {generation}
PublishMonotonic ==
  [][\A x \in target, y \in target' : x.generation <= y.generation /\ x.version <= y.version]_vars
FewerRowsAreReleased ==
  [][Cardinality(target') + others' < Cardinality(target) + others => Generations(target') \subseteq released]_vars
RefreshEnds == (lease = MAX_EPOCH) ~> At(MAX_EPOCH, "done")

(* Situations that must be reached, or the properties above would say nothing: each of these is expected to fail. *)
NeverPublishedByTwo == ~\E x, y \in receipts : x.page = 0 /\ y.page = 0 /\ x.generation < y.generation
NeverReleased == ~\E g \in released : Of(g, 0) # {}
NeverRefused == ~\E e \in Epochs : At(e, "publishing") /\ fence = e /\ ~Whole(runs[e].generation, extent.pages)
NeverGrown ==
  ~\E e \in Epochs : At(e, "publishing") /\ fence = e /\ Shrinks(runs[e].generation)
NeverLate ==
  ~\E e \in Epochs : At(e, "publishing") /\ fence > e
=============================================================================
