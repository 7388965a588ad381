package source

// path is the URL path of an object of the core group.
type path struct {
	namespace, resource, name string
}

func podPath(ref Ref) path { return path{ref.Namespace, "pods", ref.Name} }

func namespacePath(name string) path { return path{"", "namespaces", name} }

// elements returns the elements of the URL path.
func (p path) elements() []string {
	if p.namespace == "" {
		return []string{"api/v1", p.resource, p.name}
	}
	return []string{"api/v1/namespaces", p.namespace, p.resource, p.name}
}
