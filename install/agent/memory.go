package agent

import "github.com/sluice-mesh/sluice/install/rulelock"

// baseMemory is the memory in bytes that the agent needs without reading the rules of a pod: 30 MiB
// on a node with 250 pods, 4 MiB while its ports are flooded, and a tenth of the limit for buffers
// of the kernel.
const baseMemory = 64 << 20

// MinMemory is the minimum of the memory limit of the agent's container, in bytes. With a lower
// limit, the rules of one pod could make the kernel kill the agent at each audit of the pod.
const MinMemory = baseMemory + rulelock.MaxReadMemory
