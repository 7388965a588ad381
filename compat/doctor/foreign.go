package doctor

// foreignEffect reports the foreign rules because of which captured traffic bypasses the proxy.
func (d *diagnosis) foreignEffect() {
	if d.Foreign == nil {
		return
	}
	for _, text := range d.Foreign.Bypasses {
		d.add("rules", Problem, text,
			"find who makes that rule, and remove it; in a pod it takes NET_ADMIN")
	}
	for _, text := range d.Foreign.Unknown {
		d.add("rules", Warning, text,
			"check its effect: whether captured traffic bypasses the proxy cannot be decided")
	}
	if len(d.Foreign.Bypasses)+len(d.Foreign.Unknown) == 0 {
		d.add("rules", OK, "no rule of another owner lets captured traffic bypass the proxy", "")
	}
}

// bypasses reports whether captured traffic is known to bypass the proxy.
func (d *diagnosis) bypasses() bool { return d.Foreign != nil && len(d.Foreign.Bypasses) > 0 }
