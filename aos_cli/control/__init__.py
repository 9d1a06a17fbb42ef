"""Starting and stopping the daemon from the client's side: processes, fences, readiness; no protocol."""
