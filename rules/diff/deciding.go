package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A part of a fate, and which rules have a say in it.
type part struct {
	differs func(a, b rules.Fate) bool
	// sets tells whether the action has that effect.
	sets func(rules.Action) bool
	// byFirst tells that the first rule that has the effect decides, else the last.
	byFirst bool
	// at tells whether rules reached from the base chain could have it.
	at func(*rules.Base) bool
}

// parts in the order of what they mean to a reader: if a packet is dropped on one side only, its marks do not matter.
var parts = []part{
	{
		differs: func(a, b rules.Fate) bool { return a.Dropped != b.Dropped },
		sets: func(a rules.Action) bool {
			_, orDrops := a.(rules.TProxyDrop)
			return a == rules.Drop || orDrops
		},
		at: notNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.Redirect != b.Redirect },
		sets:    does[rules.RedirectTo],
		at:      isNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.TProxy != b.TProxy },
		sets:    func(a rules.Action) bool { return does[rules.TProxy](a) || does[rules.TProxyDrop](a) },
		at:      notNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.DNATPort != b.DNATPort },
		sets:    does[rules.DNATPort],
		at:      isNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.Rerouted != b.Rerouted },
		sets:    setsMark,
		at:      notNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.Zone != b.Zone },
		sets:    does[rules.SetZone],
		byFirst: true,
		at:      isRaw,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.ConntrackMark != b.ConntrackMark },
		sets:    does[rules.SaveMark],
		at:      notNAT,
	},
	{
		differs: func(a, b rules.Fate) bool { return a.Mark != b.Mark },
		sets:    setsMark,
		at:      notNAT,
	},
}

func setsMark(a rules.Action) bool {
	return does[rules.SetMark](a) || does[rules.RestoreMark](a) || does[rules.TProxyDrop](a)
}

func does[A rules.Action](a rules.Action) bool {
	_, ok := a.(A)
	return ok
}

func isNAT(b *rules.Base) bool  { return b.Type == rules.NAT }
func notNAT(b *rules.Base) bool { return b.Type != rules.NAT }
func isRaw(b *rules.Base) bool  { return b.Position() < rules.ConntrackPriority }

// differingPart returns the first part in which two fates differ.
func differingPart(a, b rules.Fate) part {
	i := slices.IndexFunc(parts, func(p part) bool { return p.differs(a, b) })
	return parts[max(i, 0)]
}

// decidingStep returns the rule that gave that part of the fate its value: the one that has set it, or else the last that ended a
// chain in which others might have; nil if there was none.
func decidingStep(t rules.Trace, p part) *rules.Step {
	var setting, ending *rules.Step
	for _, pass := range t.Passes {
		for _, step := range pass.Steps {
			actions := step.Rule().Actions
			if step.Stopped != nil {
				actions = actions[:slices.Index(actions, step.Stopped)]
			}
			if slices.ContainsFunc(actions, p.sets) && (setting == nil || !p.byFirst) {
				setting = &step
			}
			if p.at(step.Base) && slices.ContainsFunc(actions, does[rules.Verdict]) {
				ending = &step
			}
		}
	}
	if setting != nil {
		return setting
	}
	return ending
}
