package doctor

// foreignEffect reports the foreign rules because of which captured traffic bypasses the proxy.
func (j *judge) foreignEffect() {
	if j.Foreign == nil {
		return
	}
	for _, text := range j.Foreign.Bypasses {
		j.add("rules", Problem, text,
			"find who makes that rule, and remove it; in a pod it takes NET_ADMIN")
	}
	for _, text := range j.Foreign.Unknown {
		j.add("rules", Warning, text,
			"check its effect: whether captured traffic bypasses the proxy cannot be decided")
	}
	if len(j.Foreign.Bypasses)+len(j.Foreign.Unknown) == 0 {
		j.add("rules", OK, "no rule of another owner lets captured traffic bypass the proxy", "")
	}
}

// bypasses reports whether captured traffic is known to bypass the proxy.
func (j *judge) bypasses() bool { return j.Foreign != nil && len(j.Foreign.Bypasses) > 0 }
