// Package listen maintains a listening Unix socket at a path, and passes connections from processes
// of root to a function. The server for the plugin (package serve) and the server for ztunnel
// (package ztunnel) use it.
//
// The socket is in a directory that only root may enter. A new agent creates its socket under a
// temporary name and renames it over the existing one, so that one of the agents always accepts
// connections. If the socket is removed, or its agent exits, a running agent creates it again
// within a second; until then connections fail.
//
// An agent determines without connecting whether another agent listens. Earlier versions
// connected and closed the connection without a message: a server must not treat this as an error.
package listen
