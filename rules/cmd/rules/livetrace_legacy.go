package main

import (
	"time"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// legacyInterval is the time between two comparisons of the rules of iptables-legacy during a
// trace.
const legacyInterval = time.Second

// A legacyWatcher detects changes of the rules of iptables-legacy, which the kernel does not
// report.
type legacyWatcher struct {
	ns       *netns.NS
	digest   xtables.Digest
	readAt   time.Time // when the digest was last read
	disabled bool      // the digest could not be read
}

// start reads the digest of the rules. It ignores an error, because [readLive] reports that
// it cannot read the rules.
func (w *legacyWatcher) start(ns *netns.NS) {
	digest, err := xtables.DigestTables(ns)
	*w = legacyWatcher{ns: ns, digest: digest, readAt: time.Now(), disabled: err != nil}
}

// hasChanged reports whether the rules have changed since the last call that read them. It reads
// them only if the last reading is at least interval before now. It returns an error only once.
func (w *legacyWatcher) hasChanged(now time.Time, interval time.Duration) (bool, error) {
	if w.disabled || now.Sub(w.readAt) < interval {
		return false, nil
	}
	digest, err := xtables.DigestTables(w.ns)
	if err != nil {
		w.disabled = true
		return false, err
	}
	changed := digest != w.digest
	w.digest, w.readAt = digest, now
	return changed, nil
}

// hasLegacyChanged is like [legacyWatcher.hasChanged], and prints the error as a warning. In a
// kernel without nf_tables it returns false, because the ruleset is then read for each batch of
// packets.
func (t *liveTracer) hasLegacyChanged(now time.Time, interval time.Duration) bool {
	if t.source.session == nil {
		return false
	}
	changed, err := t.legacy.hasChanged(now, interval)
	if err != nil {
		t.s.warn("later changes of the rules of iptables-legacy are not noticed: %v", err)
	}
	return changed
}
