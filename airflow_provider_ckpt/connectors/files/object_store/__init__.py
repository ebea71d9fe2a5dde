"""Files sink in an object store: a wave is committed by replacing one object, and its files become visible by copies.

An object store has neither links nor renames, so the protocol differs from that of a directory (``files/fence.py``,
``files/receipts.py``). The protocol is the one of the two-phase sinks (``two_phase/``): lanes stage hidden objects, and
one commit for each wave makes a new receipt node the head of the chain. The head and the fence are in one object of the
pipeline, which is only ever replaced if it still has the version that was read. So a commit and a fence exclude each
other: after the fence has replaced the object, a commit prepared before finds another version, whenever its request
arrives.

After the commit, each staged object is copied to its final name and then removed. Any process that finds a receipt
whose object is still staged repeats this, with the same result.
"""
