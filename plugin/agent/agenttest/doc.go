// Package agenttest provides a fake node agent for tests. The tests define its answers.
package agenttest
