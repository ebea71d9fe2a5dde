"""Read and write files and directories, in a local or mounted file system or in an object store, by one interface."""
