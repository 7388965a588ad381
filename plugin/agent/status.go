package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A Status says how a node is, on a page for a person: the answer to AskStatus.
type Status struct {
	// Node is the node's name, Version the agent's version, and Time when this was found.
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	// Ready says that an ADD on the node would succeed now.
	Ready bool `json:"ready"`
	// Topics are in the order in which they are shown.
	Topics []Topic `json:"topics"`
	// Pods counts the mesh pods of the node by the state of their redirection, Drifts the
	// differences found since the agent started, by kind, and ConflictingWriters the times that
	// another program wrote over ours, by its name. They are empty if nothing is audited or found.
	Pods               map[string]int `json:"pods,omitempty"`
	Drifts             map[string]int `json:"drifts,omitempty"`
	ConflictingWriters map[string]int `json:"conflictingWriters,omitempty"`
	// Errors are the latest warnings and errors of the agent's log, the last one first.
	Errors []LoggedError `json:"errors,omitempty"`
}

// A Topic is one thing that is shown of a node.
type Topic struct {
	// Name is a word: kernel, chain, plugin, rights, api, socket, pods, drift or conflicts.
	Name string `json:"name"`
	// State is one of the states of topics.
	State TopicState `json:"state"`
	// Facts are sentences: what was found.
	Facts []string `json:"facts,omitempty"`
	// Next says what to do; empty if there is nothing.
	Next string `json:"next,omitempty"`
}

// A TopicState says whether a topic is as it should be.
type TopicState string

// The states of topics.
const (
	TopicOK      TopicState = "ok"
	TopicProblem TopicState = "problem"
	TopicUnknown TopicState = "unknown" // it cannot be found out now
	TopicOff     TopicState = "off"     // it is not asked for
)

// A LoggedError is a message of the agent's log.
type LoggedError struct {
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	// Error is the error of the last time; empty if there was none.
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

// Status asks how the node is. The error may be a [Refusal].
func (c Caller) Status(ctx context.Context) (*Status, error) {
	body, err := c.Ask(ctx, Request{Verb: AskStatus})
	if err != nil {
		return nil, err
	}
	found := new(Status)
	if json.Unmarshal(body, found) != nil || found.Node == "" {
		return nil, errors.New("its answer is no status")
	}
	return found, nil
}
