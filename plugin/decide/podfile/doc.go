// Package podfile reads a pod, and optionally its namespace, from a file as kubectl get -o yaml
// writes it. It is separate from package decide, because the plugin does not read YAML.
//
//	pod, err := podfile.Read(file)
package podfile
