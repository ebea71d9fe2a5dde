"""Assets of pipelines: ``pipeline_asset`` gets an event when a run has ended, ``work_asset`` when a run is due."""
