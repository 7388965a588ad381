package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// A call is one call of a verb for one sandbox.
type call struct {
	*Plugin
	args   *skel.CmdArgs
	ref    source.Ref
	config *config.Config
	store  record.Store
	entry  logEntry
	// sandbox is opened by ADD and CHECK.
	sandbox sandbox
}

// begin parses the input of the runtime and returns the call, which ends with [call.run]. If the
// input is invalid, begin ends the call and returns an error. An invalid configuration does not
// prevent the node agent's pod from starting, because the agent writes the configuration.
func (p *Plugin) begin(verb string, args *skel.CmdArgs) (*call, error) {
	c := &call{Plugin: p, args: args}
	var configErr error
	if c.config, configErr = config.Parse(args.StdinData); configErr != nil {
		c.config = config.ParseLenient(args.StdinData)
	}
	pod, err := parseArgs(args.Args)
	c.ref, c.store = pod.Ref, record.In(c.config.RunDir)
	c.entry = newLogEntry(verb, pod.Ref, args, p.Now())
	if keyErr := attachmentKey(args).Validate(); err == nil && keyErr != nil {
		err = cniError(types.ErrInvalidEnvironmentVariables,
			"CNI_CONTAINERID or CNI_IFNAME is invalid", keyErr)
	}
	if err == nil && configErr != nil {
		err = c.allowAgentPod(configErr)
	}
	if err != nil {
		c.end(err)
		return nil, err
	}
	return c, nil
}

// allowAgentPod returns the error of an invalid configuration, unless the pod is the node agent's:
// it then only puts the error into the log entry.
func (c *call) allowAgentPod(configErr error) error {
	if decide.Early(c.attachment(), &c.config.Decide).Reason != decide.NodeAgent {
		return configError(configErr)
	}
	c.entry.level = zap.ErrorLevel
	c.entry.put(zap.NamedError("configuration", configErr))
	return nil
}

// run executes the verb and ends the call. A panic of the verb becomes its error, so that it is
// logged and counted.
func (c *call) run(verb func() error) error {
	err := c.withoutPanics(func(*skel.CmdArgs) error { return verb() })(c.args)
	c.end(err)
	return err
}

// end closes the sandbox, writes the log line of the call, and reports an ADD to the node agent.
// After an error it also invalidates the cache of STATUS.
func (c *call) end(err error) {
	c.sandbox.close()
	logger, closeLog := c.openLog(c.config)
	defer closeLog()
	now := c.Now()
	c.entry.write(logger, now, err)
	if c.entry.verb == verbAdd {
		// If no agent is running, the ADD is not counted.
		_ = c.Agent(c.config).Report(c.entry.report(now, err))
	}
	if err != nil {
		invalidateStatus(c.config.RunDir)
	}
}

// attachment returns what the runtime has passed about the pod.
func (c *call) attachment() decide.Attachment {
	return decide.Attachment{
		Namespace: c.ref.Namespace, Name: c.ref.Name, Annotations: c.config.Annotations,
	}
}

// podUnreadable is the reason of a decision about a pod that cannot be read. Package decide does
// not use it.
const podUnreadable decide.Reason = agent.PodUnreadable

// readTimeout returns the time limit for reading the pod and its Namespace from the node agent and
// the API server.
func (c *call) readTimeout() time.Duration { return client.DefaultTimeout + c.config.APIBudget }

// decide returns the decision about the pod, and the pod if it was read. The pod and its Namespace
// are each read only if the decision depends on them. The pod is never nil if the outcome is
// Redirect or Ambient.
func (c *call) decide() (decide.Decision, *decide.Pod, error) {
	in := decide.Input{Attachment: c.attachment()}
	if d := decide.Early(in.Attachment, &c.config.Decide); d.Outcome != decide.Undecided {
		return d, nil, nil
	}
	cause := fmt.Errorf("timeout after %v", c.readTimeout())
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.readTimeout(), cause)
	defer cancel()
	pods := c.Source(c.config)
	defer pods.Close()
	var err error
	if in.Pod, err = pods.Pod(ctx, c.ref); err != nil {
		return c.decideUnreadable(err)
	}
	d, err := decide.WithNamespace(in, &c.config.Decide,
		func(name string) (*decide.Namespace, error) { return pods.Namespace(ctx, name) })
	if err != nil {
		return c.decideUnreadable(err)
	}
	return d, in.Pod, nil
}

// decideUnreadable applies the setting unreadable_pods to a pod that cannot be read, or whose
// Namespace cannot be read.
func (c *call) decideUnreadable(err error) (decide.Decision, *decide.Pod, error) {
	c.entry.setUnreadable()
	if c.config.UnreadablePods == config.Fail {
		return decide.Decision{}, nil, podError(c.ref, err)
	}
	c.entry.put(zap.NamedError("unreadable", err))
	return decide.Decision{
		Outcome: decide.Skip, Reason: podUnreadable,
		Message: "the pod or its namespace cannot be read, and the setting unreadable_pods is" +
			" skip, so this ADD does not redirect the pod",
	}, nil, nil
}

// parameters returns the parameters of a pod's redirection. ns is the pod's namespace; nil means
// the namespace of the calling thread.
func (c *call) parameters(ns *netns.NS, pod *decide.Pod, result []byte) (rules.Redirect, error) {
	addresses, err := c.addresses(ns, result)
	if err != nil {
		return rules.Redirect{}, err
	}
	r, notes, err := decide.Parameters(pod, addresses, &c.config.Decide)
	if err == nil {
		if notes, err = c.keepIPv6Capture(ns, &r, notes); err != nil {
			return rules.Redirect{}, err
		}
	}
	c.entry.addNotes(notes)
	if err != nil {
		c.entry.addFullError(err)
		count := 1
		if faults := rules.Faults(nil); errors.As(err, &faults) {
			count = len(faults)
		}
		message := countText(fmt.Sprintf("pod %s has", c.ref.Shown()), count, "invalid setting")
		return rules.Redirect{}, cniError(CodeParameters, message, err)
	}
	return r, nil
}

// addresses returns the addresses in the result. If none of them determines an address family (see
// [decide.GlobalAddresses]), it returns the addresses of the namespace, IPv4 first. For example, a
// plugin that is alone in its chain gets no result, and the result of a further attachment may
// contain only a link-local address.
func (c *call) addresses(ns *netns.NS, result []byte) ([]netip.Addr, error) {
	addresses, err := parseAddresses(result)
	if err != nil {
		return nil, cniError(types.ErrInvalidNetworkConfig, "the previous plugin's result is invalid",
			err)
	}
	if len(decide.GlobalAddresses(addresses)) > 0 {
		return addresses, nil
	}
	if addresses, err = route.Addresses(ns); err != nil {
		return nil, c.failure(types.ErrInvalidNetNS, "the addresses of pod %s cannot be read", err)
	}
	return addresses, nil
}

// failure returns an error about the pod, whose name the format contains as %s.
func (c *call) failure(code uint, format string, err error) *types.Error {
	return cniError(code, fmt.Sprintf(format, c.ref.Shown()), err)
}

// newRecord returns a record of the attachment, without rules.
func (c *call) newRecord(d decide.Decision) record.Record {
	return record.Record{
		Key: attachmentKey(c.args), Network: c.config.Network, Netns: c.args.Netns,
		Pod:     record.Pod{Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID},
		Outcome: d.Outcome.String(), Reason: string(d.Reason),
		Time: c.Now().Round(time.Millisecond).UTC(),
	}
}
