// Package client is the plugin's side of the node agent's socket. Package agent describes the
// protocol.
//
// A [Client] is a [source.Source] that reads pods from the agent's cache of the node's pods. A
// Client also sends the lines of the plugin's log and the report of each ADD to the agent, and asks
// the agent to enroll pods in ambient mode. If the agent is absent or slow, [source.IsUnavailable]
// is true for the error, and [source.Fallback] asks the API server next.
//
//	c := client.New(client.Options{Socket: agent.SocketIn(runDir)})
//	pods := source.Fallback(c, source.NewAPIServer(options))
package client
