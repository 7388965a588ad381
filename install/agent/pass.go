package agent

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/token"
)

// seen is what was reported already: what stays as it was is not told again.
type seen struct {
	problems []node.Problem
	rewrites map[string]uint64
	token    token.Status
}

// Reasons of events that are not about the node's files.
const (
	kernelReason      = "KernelUnsupported"
	tokenReason       = "TokenNotPublished"
	rightsReason      = "RightsMissing"
	unavailableReason = "APIServerUnavailable"
)

// kernelAnswered reports what the kernel can do.
func (a *Agent) kernelAnswered(p observe.Part) {
	if p.Ready {
		a.options.Log.Info("the kernel: " + p.Reasons[0])
		return
	}
	a.options.Log.Error("nothing is installed, since the kernel could not do it", zap.Strings("why", p.Reasons))
	a.announcer.set([]notice{{kernelReason, "nothing is installed on this node: " + p.Reasons[0]}})
}

// passed reports what the node's files are like.
func (a *Agent) passed(s node.Status) {
	a.reporter.pass(s)
	a.announce()
}

// announce compares the node's events with what is wrong now.
func (a *Agent) announce() {
	s := a.node.Status()
	if s.At.IsZero() {
		return
	}
	problems := slices.Clone(s.Problems)
	for i := range problems {
		problems[i].Message = a.reporter.onNode.Replace(problems[i].Message)
	}
	a.announcer.set(wrongs(problems, a.publisher.Status(), a.missingRights(), a.serves(), time.Now()))
}

// wrongs are the events of what is wrong with the node's files, with the plugin's kubeconfig, and with the rights that are missing.
func wrongs(problems []node.Problem, t token.Status, missing []string, serves bool, now time.Time) []notice {
	var list []notice
	// Before the first answer of the API server, waiting for it is how each start begins.
	starting := t.Origin == "" && t.Problem == nil
	for _, p := range problems {
		if p.Reason != node.HeldBack || !starting && len(missing) == 0 { // which right is missing is told below
			list = append(list, notice{string(p.Reason), p.Message})
		}
	}
	if len(missing) > 0 {
		list = append(list, notice{rightsReason, strings.Join(missing, "; ")})
	}
	if t.Problem != nil {
		list = append(list, notice{tokenReason, "the plugin's kubeconfig: " + t.Problem.Error()})
	}
	if t.Unavailable != nil && !t.Usable(now) && !serves {
		list = append(list, notice{unavailableReason, "the API server does not answer the plugin's kubeconfig: " + t.Unavailable.Error()})
	}
	return list
}

// pass reports what is new in a status: changes, problems that came or went, and rivals.
func (r *reporter) pass(s node.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range s.Changes {
		r.log.Info("written", zap.String("file", r.onNode.Replace(path)))
		r.metrics.Count("sluice_install_writes_total", 1, r.partOf(path), "success")
	}
	if len(s.Changes) > 0 && s.Installed() {
		r.metrics.Count("istio_cni_installs_total", 1, "SUCCESS")
	}
	for _, p := range s.Problems {
		if !slices.Contains(r.seen.problems, p) {
			r.came(p)
		}
	}
	for _, p := range r.seen.problems {
		if !slices.Contains(s.Problems, p) {
			r.log.Info("over: " + r.onNode.Replace(p.String()))
		}
	}
	for rival, n := range s.Totals.Rewrites {
		if more := n - r.seen.rewrites[rival]; more > 0 {
			r.metrics.Count("sluice_rival_rewrites_total", float64(more), rival)
		}
	}
	r.seen.problems, r.seen.rewrites = s.Problems, s.Totals.Rewrites
	r.metrics.SetBool("sluice_chain_bypassed", !s.Installed() && s.Primary != "" && !slices.Contains(s.Plugins, pluginType))
}

// came reports a problem that was not there before.
func (r *reporter) came(p node.Problem) {
	text := r.onNode.Replace(p.String())
	if p.Reason == node.Polling {
		r.metrics.Count("sluice_events_lost_total", 1, "files")
	}
	if !p.Blocking || p.Reason == node.HeldBack { // why it waits is told by what it waits for
		r.log.Warn(text)
		return
	}
	r.log.Error(text)
	switch p.Reason {
	case node.DiskFull, node.ReadOnly, node.Forbidden, node.Failed, node.DirectoryGone:
		part, istio := r.partOf(p.Message), "CREATE_CNI_CONFIG_FAILURE"
		if part == observe.Binary {
			istio = "COPY_BINARIES_FAILURE"
		}
		r.metrics.Count("sluice_install_writes_total", 1, part, "error")
		r.metrics.Count("istio_cni_installs_total", 1, istio)
	}
}

// published reports what became of a token.
func (a *Agent) published(s token.Status) {
	if a.stopping.Load() {
		return
	}
	a.reporter.token(s)
	a.announce()
}

func (r *reporter) token(s token.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.seen.token
	r.seen.token = s
	for _, c := range []struct {
		result    string
		now, then uint64
	}{{"success", s.Published, last.Published}, {"refused", s.Refused, last.Refused}, {"error", s.Failed, last.Failed}} {
		if c.now > c.then {
			r.metrics.Count("sluice_token_publications_total", float64(c.now-c.then), c.result)
		}
	}
	if s.Published > last.Published {
		r.log.Info("the plugin's kubeconfig is published", zap.String("token", string(s.Origin)), zap.Time("expires", s.Expiry))
		r.metrics.Count("sluice_install_writes_total", 1, observe.Kubeconfig, "success")
	}
	if s.Failed > last.Failed {
		r.metrics.Count("sluice_install_writes_total", 1, observe.Kubeconfig, "error")
		r.metrics.Count("istio_cni_installs_total", 1, "CREATE_KUBECONFIG_FAILURE")
	}
	r.trouble("the plugin's kubeconfig", s.Problem, last.Problem)
	r.trouble("the plugin lacks a right", s.Forbidden, last.Forbidden)
	if s.Unavailable == nil || last.Unavailable == nil { // how long a try took is another each time
		r.trouble("the API server does not answer the plugin's kubeconfig", s.Unavailable, last.Unavailable)
	}
}

// trouble logs what is wrong when it begins and when it changes, and when it is over.
func (r *reporter) trouble(what string, now, last error) {
	switch {
	case now != nil && (last == nil || now.Error() != last.Error()):
		r.log.Warn(what, zap.Error(now))
	case now == nil && last != nil:
		r.log.Info("over: " + what)
	}
}
