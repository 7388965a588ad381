package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A Status describes the state of a node for its operator. It is the answer to [GetStatus].
type Status struct {
	// Node is the node's name, Version the agent's version, and Time the time of the status.
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	// Ready reports whether an ADD on the node would succeed.
	Ready bool `json:"ready"`
	// Topics contains the parts of the status in display order.
	Topics []Topic `json:"topics"`
	// Pods counts the mesh pods of the node by the state of their redirection. Drifts counts the
	// differences that audits have found since the agent started, by kind. ConflictingWriters
	// counts the removals of the plugin from the node's CNI chain, by the removing program. Each is
	// empty if nothing has been counted.
	Pods               map[string]int `json:"pods,omitempty"`
	Drifts             map[string]int `json:"drifts,omitempty"`
	ConflictingWriters map[string]int `json:"conflictingWriters,omitempty"`
	// Errors contains the latest warnings and errors of the agent's log, latest first.
	Errors []LoggedError `json:"errors,omitempty"`
}

// A Topic is one part of a node's status.
type Topic struct {
	// Name is one of kernel, chain, plugin, permissions, runtime, api, socket, pods, drift and
	// conflicts, and in ambient mode also ambient, ztunnel and host.
	Name string `json:"name"`
	// State is one of the states of topics.
	State TopicState `json:"state"`
	// Facts contains sentences about the state.
	Facts []string `json:"facts,omitempty"`
	// Next is the next step for the operator, or empty if there is none.
	Next string `json:"next,omitempty"`
}

// A TopicState is the state of a topic.
type TopicState string

// The states of topics.
const (
	TopicOK      TopicState = "ok"
	TopicProblem TopicState = "problem"
	TopicUnknown TopicState = "unknown" // the state cannot be determined now
	TopicOff     TopicState = "off"     // the configuration disables the subject of the topic
)

// A LoggedError is a message of the agent's log.
type LoggedError struct {
	// First and Last are the times at which the message was logged first and last, and Count is the
	// number of times that it was logged.
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	// Error is the error that was logged with the message the last time, or empty.
	Error string `json:"error,omitempty"`
}

// Healthy reports whether the node is ready and no topic is a problem.
func (s *Status) Healthy() bool {
	for _, t := range s.Topics {
		if t.State == TopicProblem {
			return false
		}
	}
	return s.Ready
}

// Status returns the status of the node. The error may be a [Refusal].
func (c Caller) Status(ctx context.Context) (*Status, error) {
	body, err := c.Query(ctx, Request{Verb: GetStatus})
	if err != nil {
		return nil, err
	}
	found := new(Status)
	if json.Unmarshal(body, found) != nil || found.Node == "" {
		return nil, errors.New("its answer is not a status")
	}
	return found, nil
}
