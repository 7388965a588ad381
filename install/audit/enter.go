package audit

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// enter opens the pod's namespace and subscribes to its events. If the sandbox is unknown or cannot
// be opened, it requests a search and returns nil. If the agent lacks the resources for opening it,
// enter sets the state Unknown and returns nil.
func (r *auditRun) enter(ctx context.Context) Namespace {
	if r.sandbox == nil {
		r.requestSandbox(ctx)
		return nil
	}
	ns, err := r.Open(*r.sandbox)
	if lacksResources(err) {
		r.onUnreadable(err)
		return nil
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Debug("a sandbox cannot be opened, and is searched for again", zap.Stringer("pod", r.item.Ref),
				zap.Error(err))
		}
		r.discardSandbox()
		r.requestSandbox(ctx)
		return nil
	}
	r.withoutSandboxSince = time.Time{}
	r.watchNamespace(ns)
	return meteredNamespace{ns, r}
}

// sandboxExists reports whether the pod's known sandbox still exists.
func (r *auditRun) sandboxExists() bool {
	if r.sandbox == nil {
		return false
	}
	ns, err := r.Open(*r.sandbox)
	if err != nil {
		return lacksResources(err)
	}
	_ = ns.Close()
	return true
}

// lacksResources reports whether an error of Open shows only that the agent lacks file descriptors
// or memory, and not that the sandbox has ended.
func lacksResources(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// discardSandbox discards the location of the sandbox.
func (r *auditRun) discardSandbox() {
	r.lastEqual, r.foreignEffect = lastEqual{}, foreignEffect{} // the kernel may reuse the inode number
	r.addressesDifferSince = time.Time{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod.sandbox == r.sandbox {
		r.pod.sandbox = nil
	}
	r.sandbox = nil
}

// requestSandbox requests a search for the sandbox. If the pod should have a sandbox, and an
// earlier search has failed, it sets the state Unknown. A pod should have a sandbox if it has
// started or was deleted, and has not ended. A deleted pod has ended if its sandbox does not exist
// any more, or if the sandbox is not found and the pod has no record of ADD. Once the sandbox has
// been missing for errorBackoff, requestSandbox also logs the reason, and performs the actions that
// do not need the sandbox; until then the runtime may be replacing the sandbox.
func (r *auditRun) requestSandbox(ctx context.Context) {
	missingFor := r.timeSince(&r.withoutSandboxSince)
	r.mu.Lock()
	isRetried, missing := r.queue.NumRequeues(r.uid) > 0, r.missing
	r.mu.Unlock()
	hasEnded := r.item.PodStatus.Deleted && (missing.Ended || len(r.pod.records) == 0)
	if r.orphaned && missing.Err != nil && hasEnded {
		r.ended = true
		return
	}
	r.needsSandbox = (r.hasStarted() || r.item.PodStatus.Deleted) && !hasEnded
	if isRetried && r.needsSandbox {
		r.state = Unknown
		if missingFor >= errorBackoff {
			r.logUnknownState(missing.Err)
			if r.desired.origin == fromPod {
				r.applyPolicy(ctx, time.Time{})
			}
		}
	}
	r.locator.request(r.uid, r.desired.sandboxPod)
}

// watchNamespace subscribes to changes of rules in the network namespace. It must be called before
// the comparison, so that no change is missed.
func (r *auditRun) watchNamespace(ns Namespace) {
	r.mu.Lock()
	events := r.events
	if r.pods[r.uid] == r.pod {
		// The kernel may have given the inode number of the last namespace to another pod.
		if r.watchedNetNS != r.sandbox.ID && r.byNetNS[r.watchedNetNS] == r.uid {
			delete(r.byNetNS, r.watchedNetNS)
		}
		r.watchedNetNS = r.sandbox.ID
		r.byNetNS[r.watchedNetNS] = r.uid
	}
	r.mu.Unlock()
	r.subscribed = false
	if events != nil {
		err := events.Add(ns.NS())
		r.subscribed = err == nil
		if err != nil {
			r.Log.Debug("cannot watch a pod's rules; the pod is audited only at the audit interval",
				zap.Stringer("pod", r.item.Ref), zap.Error(err))
		}
	}
	r.foreignEffect.isCurrent = r.foreignEffect.isCurrent && r.subscribed
}
