package main

// hostNetworkIP is where probes and hooks that name no host find containers on
// the node's own network: the local system, where a program that listens on
// 127.0.0.1 alone is healthy. A kubelet without an apiserver has no address for
// such pods in their status, and dials an empty host, which is the same
// (pkg/kubelet, generateAPIPodStatus; its HTTP hooks fail there). An empty host
// would also be sent as the Host header, which many servers refuse.
const hostNetworkIP = "127.0.0.1"
