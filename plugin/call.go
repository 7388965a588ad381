package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
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

// A call is one call of a verb about one sandbox.
type call struct {
	*Plugin
	args   *skel.CmdArgs
	ref    source.Ref
	config *config.Config
	store  record.Store
	entry  entry
}

// begin reads what the runtime says. The call must be ended. A wrong configuration does not keep the node agent from starting, who
// alone can write a better one.
func (p *Plugin) begin(verb string, args *skel.CmdArgs) (*call, error) {
	c := &call{Plugin: p, args: args}
	var wrong error
	if c.config, wrong = config.Parse(args.StdinData); wrong != nil {
		c.config = config.Salvage(args.StdinData)
	}
	named, err := parseArgs(args.Args)
	c.ref, c.store, c.entry = named.Ref, record.In(c.config.RunDir), newEntry(verb, named.Ref, args, p.Now())
	if keyErr := keyOf(args).Validate(); err == nil && keyErr != nil {
		err = failure(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID or CNI_IFNAME is not allowed", keyErr)
	}
	if err == nil && wrong != nil {
		err = c.despite(wrong)
	}
	if err != nil {
		c.end(err)
		return nil, err
	}
	return c, nil
}

// despite returns the error of a wrong configuration, unless the call is about a pod of the node agent.
func (c *call) despite(wrong error) error {
	if decide.Early(c.attachment(), &c.config.Decide).Reason != decide.NodeAgent {
		return configFailure(wrong)
	}
	c.entry.level = zap.ErrorLevel
	c.entry.put(zap.NamedError("configuration", wrong))
	return nil
}

// do does the work of the call and ends it, also where that panics: an ADD that breaks is logged and counted like any other.
func (c *call) do(work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.broken(v, debug.Stack())
		}
		c.end(err)
	}()
	return work()
}

// end writes the log line of the call, and tells the node agent what became of an ADD.
func (c *call) end(err error) {
	logger, closeLog := c.openLog(c.config)
	defer closeLog()
	now := c.Now()
	c.entry.write(logger, now, err)
	if c.entry.verb == verbAdd {
		// An agent that is away counts nothing.
		_ = c.Agent(c.config).Tell(c.entry.outcome(now, err))
	}
	if err != nil {
		doubt(c.config.RunDir)
	}
}

// attachment is what the runtime says of the pod.
func (c *call) attachment() decide.Attachment {
	return decide.Attachment{Namespace: c.ref.Namespace, Name: c.ref.Name, Annotations: c.config.Annotations}
}

// podUnreadable is the reason to leave a pod alone that package decide cannot have.
const podUnreadable decide.Reason = agent.PodUnreadable

// readTime bounds the questions about a pod together: for the node agent there is time besides that for the API server.
func (c *call) readTime() time.Duration { return client.DefaultTimeout + c.config.APIBudget }

// decide finds out what becomes of the pod; redirected it is not nil. Nobody is asked for a pod that can be told without.
func (c *call) decide() (decide.Decision, *decide.Pod, error) {
	in := decide.Input{Attachment: c.attachment()}
	if d := decide.Early(in.Attachment, &c.config.Decide); d.Outcome != decide.Undecided {
		return d, nil, nil
	}
	cause := fmt.Errorf("there is no more time after %v", c.readTime())
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.readTime(), cause)
	defer cancel()
	from := c.Source(c.config)
	defer from.Close()
	var err error
	if in.Pod, err = from.Pod(ctx, c.ref); err != nil {
		return c.unread(err)
	}
	d := decide.Decide(in, &c.config.Decide)
	if d.Reason == decide.NamespaceUnknown {
		if in.Namespace, err = from.Namespace(ctx, c.ref.Namespace); err != nil {
			return c.unread(err)
		}
		d = decide.Decide(in, &c.config.Decide)
	}
	return d, in.Pod, nil
}

// unread follows the policy for pods that cannot be read.
func (c *call) unread(err error) (decide.Decision, *decide.Pod, error) {
	c.entry.unread()
	if c.config.UnreadablePods == config.Fail {
		return decide.Decision{}, nil, podFailure(c.ref, err)
	}
	c.entry.put(zap.NamedError("unreadable", err))
	sentence := "the pod cannot be read, and the configuration says that such pods start without redirection"
	return decide.Decision{Outcome: decide.Skip, Reason: podUnreadable, Sentence: sentence}, nil, nil
}

// parameters returns the redirection of a pod.
func (c *call) parameters(ns *netns.NS, pod *decide.Pod, result []byte) (rules.Redirect, error) {
	addresses, err := c.addresses(ns, result)
	if err != nil {
		return rules.Redirect{}, err
	}
	r, notes, err := decide.Parameters(pod, addresses, &c.config.Decide)
	if err == nil {
		notes = c.keepFamilies(&r, notes)
	}
	c.entry.notes(notes)
	if err != nil {
		c.entry.unabridged(err)
		n := 1
		if faults := rules.Faults(nil); errors.As(err, &faults) {
			n = len(faults)
		}
		return rules.Redirect{}, failure(CodeParameters, counted(fmt.Sprintf("pod %s has", c.ref.Shown()), n, "wrong setting"), err)
	}
	return r, nil
}

// addresses are those of the result, or of the namespace if the result has none that decides: a plugin that stands alone has no result,
// and that of a further attachment may have a link-local address only. The namespace's begin with IPv4.
func (c *call) addresses(ns *netns.NS, result []byte) ([]netip.Addr, error) {
	addresses, err := addressesOf(result)
	if err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, "the previous plugin's result is wrong", err)
	}
	if len(decide.Deciding(addresses)) > 0 {
		return addresses, nil
	}
	if addresses, err = route.Addresses(ns); err != nil {
		return nil, failure(types.ErrInvalidNetNS, fmt.Sprintf("the addresses of pod %s cannot be read", c.ref.Shown()), err)
	}
	return addresses, nil
}

// sandbox opens the namespace of the pod.
func sandbox(args *skel.CmdArgs) (*netns.NS, error) {
	ns, err := netns.Open(args.Netns)
	if err != nil {
		return nil, failure(types.ErrInvalidNetNS, "the network namespace of the pod cannot be opened", err)
	}
	if err := refuseIfHost(ns, args); err != nil {
		_ = ns.Close()
		return nil, err
	}
	return ns, nil
}

// refuseHost fails for the namespace of the plugin itself: that is the host's, whose traffic is nobody's to redirect. One that cannot
// be opened is another matter.
func refuseHost(args *skel.CmdArgs) error {
	ns, err := netns.Open(args.Netns)
	if err != nil {
		return nil
	}
	defer func() { _ = ns.Close() }()
	return refuseIfHost(ns, args)
}

// refuseIfHost is refuseHost for a namespace that is open.
func refuseIfHost(ns *netns.NS, args *skel.CmdArgs) error {
	if isHost(ns) && !overridden(args) {
		return failure(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the host", nil)
	}
	return nil
}

// isHost tells whether the namespace is the plugin's own.
func isHost(ns *netns.NS) bool { return ns.ID() == (*netns.NS)(nil).ID() }

// overridden tells whether the caller vouches for the namespace; see package skel.
func overridden(args *skel.CmdArgs) bool {
	return args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "true")
}

// newRecord is the record of the call's attachment.
func (c *call) newRecord(d decide.Decision) record.Record {
	return record.Record{
		Key: keyOf(c.args), Network: c.config.Network, Netns: c.args.Netns,
		Pod:     record.Pod{Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID},
		Outcome: d.Outcome.String(), Reason: string(d.Reason),
		Time: c.Now().Round(time.Millisecond).UTC(),
	}
}
