package hostrules

// RemoveRules removes the rules from all backends, like [Node.Remove], in the network namespace of
// the thread.
var RemoveRules = remove
