package plugin

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// A pod may be attached to several networks whose chains have this plugin. All its attachments are in one namespace, and that has one
// set of rules.

// beside are the records of the pod's other attachments for which it is redirected. What is damaged, or cannot be read, is as good as
// not kept.
func (c *call) beside() []record.Record {
	attachments, _ := c.store.Beside(keyOf(c.args))
	return slices.DeleteFunc(attachments, func(r record.Record) bool { return r.Netns != c.args.Netns || r.Redirect == nil })
}

// keepFamilies goes on capturing the IPv6 that an earlier attachment brought: the addresses of this one say nothing about that.
func (c *call) keepFamilies(r *rules.Redirect, notes []decide.Note) []decide.Note {
	if r.IPv6 || !slices.ContainsFunc(c.beside(), func(other record.Record) bool { return other.Redirect.IPv6 }) {
		return notes
	}
	r.IPv6 = true
	return slices.DeleteFunc(notes, func(n decide.Note) bool { return n.Kind == decide.IPv6Uncaptured })
}

// shareRules makes the records of the other attachments say what the namespace has now.
func (c *call) shareRules(kept record.Record) {
	var err error
	for _, other := range c.beside() {
		other.Redirect, other.Engine = kept.Redirect, kept.Engine
		err = errors.Join(err, c.store.Put(other))
	}
	if err != nil {
		c.entry.put(zap.NamedError("not_shared", err))
	}
}
