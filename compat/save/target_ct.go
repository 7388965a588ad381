package save

import "github.com/sluice-mesh/sluice/rules"

// targetCT parses the target CT. Without an option the target assigns packets to zone 0.
func (r *moduleReader) targetCT() rules.Action {
	if len(r.options) == 1 && r.options[0].name == "--notrack" {
		return rules.Notrack{}
	}
	a := rules.SetZone{}
	if o := r.option("--helper"); o != nil {
		a.Helper = o.values[0].text
	}
	for _, o := range r.options {
		if o.name != "--zone" && o.name != "--helper" {
			r.setUnknownConntrack()
			return nil
		}
	}
	o := r.option("--zone")
	if o == nil {
		return a
	}
	w := o.values[0]
	if w.is("mark") {
		r.setUnknownConntrack()
		return nil
	}
	n, ok := number(w.text, 16)
	if !ok {
		r.fail(w, "a conntrack zone (0-65535)")
	}
	a.Zone = uint16(n)
	return a
}
