"""Connect to sources and sinks: ``files``, ``jdbc``, ``kafka``, ``postgres``, ``sql``, ``delta`` and ``iceberg``.

``source_protocol`` and ``sink_protocol`` define the interfaces of these connectors; ``registry`` imports a connector
when it is needed.

A module of the same name has the same duty in every connector:

- ``source`` plans and ``reader`` reads; ``split`` divides a range into batches.
- ``sink`` checks and reports, and ``writer`` writes; ``fence`` shuts out older epochs, ``receipt_claim`` or
  ``partition_claim`` begins a lane's transaction, ``receipts`` stores and reads receipts, and ``restored_target``
  detects that delivered rows are gone.
- ``dead_letters`` stores dead letters in the sink, with their batch, and ``dead_letter_store`` outside the sink.
- ``client`` connects, ``layout`` names paths, and ``column_types`` converts types.

``two_phase`` has the parts that ``delta`` and ``iceberg`` share, and ``storage`` reads and writes files in local
directories and object stores.
"""
