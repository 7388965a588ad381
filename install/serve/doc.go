// Package serve implements the server for the plugin and the rules command. Through the agent's
// socket the plugin requests pods, enrolls pods in ambient mode and reports its ADDs. The rules
// command requests the location of a pod and the state of the node. Package plugin/agent defines
// the protocol. Package listen creates the socket, and accepts connections only from root.
//
// The number of connections, the size of a request and the time for each step are limited. If a
// limit is reached, the plugin requests pods from the API server.
package serve
