package sandbox

import "strings"

// podOf returns the UID of the pod that a process belongs to. cgroup is the text of the process's
// /proc/PID/cgroup. The UID is empty if the process does not belong to a pod, or if the hierarchies
// of version 1 name different pods.
//
// The kubelet names a pod's cgroup pod<UID> (driver cgroupfs) or kubepods-<class>-pod<UID>.slice,
// where the UID contains _ in place of - (driver systemd). There may be more levels above the pod's
// cgroup, as in kind, and seen from a cgroup namespace the path may begin with /../. The pod
// chooses the names of levels below its cgroup.
func podOf(cgroup string) (uid string) {
	for line := range strings.Lines(cgroup) {
		// hierarchy-ID:controller-list:cgroup-path (cgroups(7))
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		found := podInPath(fields[2])
		switch {
		case found == "" || found == uid:
		case uid == "":
			uid = found
		default:
			return ""
		}
	}
	return uid
}

// podInPath returns the UID in the outermost level that names a pod, or "" if there is none.
func podInPath(path string) string {
	for level := range strings.SplitSeq(path, "/") {
		if uid, ok := strings.CutPrefix(level, "pod"); ok && isUID(uid) {
			return uid
		}
		slice, ok := strings.CutSuffix(level, ".slice")
		if !ok {
			continue
		}
		const separator = "-pod"
		i := strings.LastIndex(slice, separator)
		if i < 0 || !strings.Contains(slice[:i], "kubepods") {
			continue
		}
		uid := strings.ReplaceAll(slice[i+len(separator):], "_", "-")
		if isUID(uid) {
			return uid
		}
	}
	return ""
}

// isUID reports whether the text may be a pod's UID: 36 characters with hyphens, or the 32
// characters of a static pod's hash. The check is necessary, because other programs may create
// cgroups whose names begin with "pod".
func isUID(s string) bool {
	if len(s) != 36 && len(s) != 32 {
		return false
	}
	for i, c := range []byte(s) {
		hyphen := len(s) == 36 && (i == 8 || i == 13 || i == 18 || i == 23)
		if hyphen != (c == '-') || !hyphen && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
