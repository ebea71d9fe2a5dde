"""Sources and sinks, one package for each kind: ``files``, ``jdbc``, ``kafka``, ``postgres``, ``delta``, ``iceberg``.

``source_protocol`` and ``sink_protocol`` define their interfaces; ``registry`` imports a connector when it is needed.

A role has the same file name in every connector that has it:

- ``source`` plans and ``reader`` reads; ``split`` divides a range into batches.
- ``sink`` checks and reports, and ``writer`` writes; ``fence`` shuts out older epochs, ``receipt_claim`` or
  ``partition_claim`` begins a lane's transaction, ``receipts`` stores and reads receipts, and ``restored_target``
  detects that delivered rows are gone.
- ``dead_letters`` stores dead letters with their batch, and ``dead_letter_store`` away from the sink.
- ``client`` connects, ``layout`` names paths, and ``column_types`` converts types.

``delta`` and ``iceberg`` share the roles in ``two_phase``; ``local`` has the bookkeeping that is stored in files.
"""
