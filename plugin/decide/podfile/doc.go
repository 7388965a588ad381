// Package podfile reads a pod, or the template of a workload's pods, and optionally its namespace,
// from a file as kubectl get -o yaml writes it. It is separate from package decide, because the
// plugin does not read YAML.
//
//	workload, err := podfile.Read(file)
//	...
//	fmt.Println(workload.Source, workload.Pod.Metadata.Annotations)
package podfile
