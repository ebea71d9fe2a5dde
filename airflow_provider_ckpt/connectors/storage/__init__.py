"""Files and directories in a local or mounted file system or in an object store, behind one interface."""
