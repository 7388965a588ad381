package doctor

// checkForeignEffect reports the foreign rules that make captured traffic bypass the proxy.
func (d *diagnosis) checkForeignEffect() {
	if d.Foreign == nil {
		return
	}
	for _, text := range d.Foreign.Bypasses {
		d.add("rules", Problem, text,
			"find the program that adds this rule, and remove the rule; in a pod such a program has"+
				" NET_ADMIN")
	}
	for _, text := range d.Foreign.Unknown {
		d.add("rules", Warning, text,
			"check the effect on captured traffic: whether it bypasses the proxy cannot be decided")
	}
	if len(d.Foreign.Bypasses)+len(d.Foreign.Unknown) == 0 {
		d.add("rules", OK, "no foreign rule makes captured traffic bypass the proxy", "")
	}
}

// bypasses reports whether captured traffic is known to bypass the proxy.
func (d *diagnosis) bypasses() bool { return d.Foreign != nil && len(d.Foreign.Bypasses) > 0 }
