// Command rules programs, shows, checks and explains the traffic redirection of a mesh pod. Its flags and environment
// variables are those of istio-iptables; `rules help` describes it.
package main

import "os"

func main() { os.Exit(run(thisSystem(), os.Args[1:])) }
