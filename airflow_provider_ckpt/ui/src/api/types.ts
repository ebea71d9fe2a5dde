/** The API's models by name, as generated from its OpenAPI document. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type Accounted = Schemas["Accounted"];
export type ActionFlag = Schemas["ActionFlag"];
export type ActionName = Schemas["ActionWish"]["kind"];
export type ActionOutcome = Schemas["ActionOutcome"];
export type ActionWish = Schemas["ActionWish"];
export type Attempt = Schemas["Attempt"];
export type BatchDetail = Schemas["BatchDetail"];
export type BatchRow = Schemas["BatchRow"];
export type Blocked = Schemas["Blocked"];
export type Bytes = Schemas["Bytes"];
export type ColumnChange = Schemas["ColumnChange"];
export type DatabaseRow = Schemas["DatabaseRow"];
export type EventRow = Schemas["EventRow"];
export type Failure = Schemas["Failure"];
export type Fate = Schemas["Fate"];
export type Health = Schemas["Health"];
export type LagPoint = Schemas["LagPoint"];
export type Lease = Schemas["Lease"];
export type DeadLetterEntry = Schemas["DeadLetterEntry"];
export type DeadLetterFilter = Schemas["DeadLetterFilter"];
export type DeadLetterGroup = Schemas["DeadLetterGroup"];
export type DeadLetterRecord = Schemas["DeadLetterRecord"];
export type Line = Schemas["Line"];
export type PartitionLine = Schemas["PartitionLine"];
export type PartitionRow = Schemas["PartitionRow"];
export type Piece = Schemas["Piece"];
export type PipelineDetail = Schemas["PipelineDetail"];
export type PipelineRow = Schemas["PipelineRow"];
export type Preview = Schemas["Preview"];
export type Problem = Schemas["Problem"];
export type ProposalRow = Schemas["ProposalRow"];
export type RecoveryForm = Schemas["RecoveryForm"];
export type Refresh = Schemas["Refresh"];
export type RunBar = Schemas["RunBar"];
export type RunLink = Schemas["RunLink"];
export type SchemaVersion = Schemas["SchemaVersionMark"];
export type StoredActionRow = Schemas["StoredActionRow"];
export type Timeline = Schemas["Timeline"];
