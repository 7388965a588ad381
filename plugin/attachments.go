package plugin

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// A pod may be attached to several networks whose plugin chains contain this plugin. All its
// attachments are in one namespace, which has one set of rules.

// otherAttachments returns the records of the pod's other attachments in the same namespace that
// are redirected. Records of another namespace belong to an earlier sandbox with the same container
// ID. Records that are damaged or cannot be read are ignored.
func (c *call) otherAttachments() []record.Record {
	attachments, _ := c.store.Others(attachmentKey(c.args))
	return slices.DeleteFunc(attachments, func(r record.Record) bool {
		return r.Netns != c.args.Netns || !r.HasRules()
	})
}

// keepIPv6Capture enables the capture of IPv6 if another attachment of the pod captures it, even if
// this attachment has no IPv6 address. It returns the notes that still apply. ns is the pod's
// namespace; nil means the namespace of the calling thread.
func (c *call) keepIPv6Capture(
	ns *netns.NS, r *rules.Redirect, notes []decide.Note,
) ([]decide.Note, error) {
	if r.IPv6 {
		return notes, nil
	}
	if captured, err := c.othersCaptureIPv6(ns); err != nil || !captured {
		return notes, err
	}
	r.IPv6 = true
	return slices.DeleteFunc(notes, func(n decide.Note) bool {
		return n.Kind == decide.IPv6Uncaptured
	}), nil
}

// othersCaptureIPv6 reports whether another attachment of the pod captures IPv6. If a record cannot
// be read, for example because a newer plugin wrote it, the rules in the namespace decide.
func (c *call) othersCaptureIPv6(ns *netns.NS) (bool, error) {
	capturesIPv6 := func(other record.Record) bool {
		return other.Redirect != nil && other.Redirect.IPv6
	}
	if slices.ContainsFunc(c.otherAttachments(), capturesIPv6) {
		return true, nil
	}
	_, storeErr := c.store.Others(attachmentKey(c.args))
	if storeErr == nil {
		return false, nil
	}
	c.entry.put(zap.NamedError("other_records_error", storeErr))
	var err error
	for _, backend := range compat.Backends() {
		rs, readErr := backend.Read(ns)
		// The rules need this address if and only if they capture IPv6.
		if readErr == nil && slices.Contains(rs.Routing.LoopbackAddrs, rules.PassthroughIPv6()) {
			return true, nil
		}
		if !compat.IsNotSupported(readErr) && !compat.IsLegacyTooLarge(compat.BackendNFT, readErr) {
			err = errors.Join(err, readErr)
		}
	}
	if err != nil {
		return false, c.rulesReadError(err)
	}
	return false, nil
}

// shareRules copies the parameters and the backend of the new rules to the records of the other
// attachments, which share the namespace.
func (c *call) shareRules(r record.Record) {
	var err error
	for _, other := range c.otherAttachments() {
		other.Redirect, other.Ambient, other.Backend = r.Redirect, r.Ambient, r.Backend
		err = errors.Join(err, c.store.Put(other))
	}
	if err != nil {
		c.entry.put(zap.NamedError("other_records_error", err))
	}
}
