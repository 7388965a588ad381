// Package agenttest provides a node agent for tests, with replies that the test defines.
package agenttest
