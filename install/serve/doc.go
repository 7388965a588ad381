// Package serve implements the server of the node agent's socket. The plugin requests pods through
// the socket, and the command rules the location of a pod. Package agent defines the protocol.
//
// Package listen creates the socket, and accepts connections only from root.
//
// The number of connections, the size of a request and the time for each step are limited. Beyond
// the limits the plugin uses the API server.
package serve
