// Package listen keeps a Unix socket at a path listening, and passes its connections to a function.
// The plugin's server (package serve) and the server of ztunnel (package ztunnel) use it.
//
// The socket is in a directory that only root may enter. A new agent creates its socket under a
// temporary name and renames it over the existing one, so that one of the agents always answers. A
// socket that a terminated agent left, or that was removed, is replaced within a second; until then
// connections are refused. An agent finds out whether another one listens without a connection to
// it. Earlier versions connected and closed the connection without a message: a server must not
// regard that as an error.
//
// Only connections from root are passed on.
package listen
