package validation

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// result compares the observation with the expected outcome and returns the check. rulesMatch
// reports whether the rules in the kernel match the parameters.
func (t *probe) result(o observation, rulesMatch bool) Check {
	c := t.Check
	if c.Status != "" {
		return c
	}
	packet := t.packet
	if o.source.IsValid() {
		packet.Source = o.source
	}
	c.Packet, c.Found = packet.String(), t.outcomeText(o)
	c.Status = Failed
	switch {
	case o.outcome == unknown:
		c.Status, c.Reason = NotChecked, o.err.Error()
		c.Next = runOnNode
	case t.isExpected(o):
		c.Status = OK
	case t.outside && o.outcome != arrived && !o.controlArrived:
		c.Status, c.Reason = NotChecked,
			"no connection from here reaches the pod, whether it is captured or not"
		c.Next = "connect to the pod from another pod"
	default:
		c.Next = t.advice(o, rulesMatch)
	}
	return c
}

// isExpected reports whether the observation matches the expected outcome.
func (t *probe) isExpected(o observation) bool {
	expected := t.trace.Outcome
	switch {
	case expected.Dropped:
		return o.outcome == unanswered
	case !expected.Captured() && o.outcome == refused:
		return !t.listenerExpected // there is no listener, and nothing captured the probe
	case o.outcome != arrived && o.outcome != answered, o.arrival.port != t.port():
		return false
	case t.agent != nil && o.outcome != answered:
		return false
	}
	original := o.arrival.original
	return !original.IsValid() || original == t.packet.Destination
}

// outcomeText describes the observed outcome of the probe.
func (t *probe) outcomeText(o observation) string {
	to := t.packet.Destination
	switch o.outcome {
	case unsent:
		return "it could not be sent: " + o.err.Error()
	case refused:
		return "refused: there is no listener at its destination"
	case receivedOutside:
		return "received outside of the namespace: not captured"
	case unknown:
		return "it is unknown which socket received it"
	case answered:
		return fmt.Sprintf("redirected to port %d, and answered with the source address %s",
			o.arrival.port, to)
	case arrived:
		return t.arrivalText(o.arrival)
	}
	if o.err != nil {
		return "no answer: " + o.err.Error()
	}
	return "no answer: it was dropped, or has left the pod"
}

// arrivalText describes the arrival of the probe.
func (t *probe) arrivalText(a arrival) string {
	to := t.packet.Destination
	switch {
	case t.Kind == ZtunnelCalls && a.port == to.Port():
		return fmt.Sprintf("arrived at %s itself, and the replies came back", to)
	case t.packet.Mark != 0 && a.port == to.Port():
		return "stayed in the pod"
	case t.agent != nil:
		return fmt.Sprintf("redirected to port %d, but the answer did not come back", a.port)
	case a.port == to.Port() && (a.port != t.port() || !t.trace.Outcome.Captured()):
		return fmt.Sprintf("arrived at %s itself, not captured", to)
	case a.original.IsValid():
		return fmt.Sprintf("arrived at port %d, with %s as the original destination", a.port,
			a.original)
	}
	return fmt.Sprintf("arrived at port %d", a.port)
}

// advice returns the remedy for a probe with an unexpected outcome.
func (t *probe) advice(o observation, rulesMatch bool) string {
	const (
		rulesCorrect = "the rules are correct, so the cause is elsewhere: run rules doctor"
		repair       = ": run 'rules check' to list the differences, and 'rules apply' to repair them"
	)
	switch {
	case !rulesMatch && t.hint != "":
		return t.hint
	case !rulesMatch && t.packet.Mark != 0:
		return "run 'rules apply' to restore the rules for marked packets, the policy rule and its" +
			" route"
	case errors.Is(o.err, unix.EADDRNOTAVAIL):
		return "the namespace does not have the address: pass the pod's addresses with --pod-ip"
	case rulesMatch && o.outcome == refused && t.trace.Outcome.Captured():
		return rulesCorrect + "; or the proxy does not listen for " +
			familyName(t.packet.Family())
	case rulesMatch:
		return rulesCorrect
	case o.outcome == refused && t.trace.Outcome.Captured():
		return "the rules differ from the parameters, or the proxy does not listen for " +
			familyName(t.packet.Family()) + repair
	case t.agent != nil && o.outcome == arrived:
		return "the rules for the conntrack zones of DNS are missing, or belong to another program" +
			repair
	}
	return "the rules are missing or differ from the parameters" + repair
}
