"""Assets of pipelines: ``pipeline_asset`` gets an event when a checkpoint has moved, ``work_asset`` if a run is due."""
