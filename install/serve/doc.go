// Package serve is the node agent's side of the socket by which the plugin asks for pods, and the
// command rules for where one is; package agent has the protocol.
//
// The socket is in a directory that only root may enter, and belongs to whoever made it last: a new
// agent makes its own next to the old one's and renames it over that, so that at every moment one
// of them answers. A socket that a dead agent left, or that somebody removed, is replaced within a
// second. Of those who connect only root is listened to.
//
// What a caller may cost is bounded: connections at a time, bytes of a request, time for each step.
// Beyond that the plugin asks the API server instead.
package serve
