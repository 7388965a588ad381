package route

import "github.com/sluice-mesh/sluice/rules"

// addUnroutedAndForeign sets Unrouted and Others of found. Unrouted are the rules of this package
// without their route. Others are the foreign rules with [rules.PolicyPriority] and the foreign
// routes in the tables of this package's rules.
func (r *reader) addUnroutedAndForeign(found *rules.Routing) error {
	reported := setOf(found.Policies)
	listed := map[localRoute]bool{} // routes whose table was already listed
	for _, rule := range r.policyRules {
		switch {
		case rule.policy.Priority != rules.PolicyPriority:
			continue
		case !rule.isOwned():
			found.Others = append(found.Others, rule.String())
			continue
		case !reported[rule.policy]:
			reported[rule.policy] = true
			found.Unrouted = append(found.Unrouted, rule.policy)
		}
		if listed[rule.route()] {
			continue
		}
		listed[rule.route()] = true
		t, err := r.table(rule.route())
		if err != nil {
			return err
		}
		for _, other := range t.others {
			found.Others = append(found.Others, other.String())
		}
	}
	return nil
}
