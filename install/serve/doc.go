// Package serve implements the server of the node agent's socket. The plugin requests pods through
// the socket, and the command rules the location of a pod. Package agent defines the protocol.
//
// The socket is in a directory that only root may enter. A new agent creates its socket under a
// temporary name and renames it over the existing one, so that one of the agents always answers. A
// socket that a terminated agent left, or that was removed, is replaced within a second. Requests
// are accepted only from root.
//
// The number of connections, the size of a request and the time for each step are limited. Beyond
// the limits the plugin uses the API server.
package serve
