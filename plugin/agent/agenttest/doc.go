// Package agenttest is a node agent for tests. It answers what the test tells it to.
package agenttest
