// Package pleg notices changes of the runtime that nobody in podd asked for: a
// container that exits, a sandbox that dies, something removed by hand.
//
// It owns the runtime's event stream and the safety relist. An event is a hint: it wakes
// the worker of its pod, which observes the pod itself. An event says only "sync this
// pod", so a late, duplicate or lost one costs a sync and never the truth.
//
//	runtime ──event stream──► Relister ──Wake(uid)──► worker
//	        ◄─Summaries, rarely─┘
//
// A relist happens at the start, when the stream was lost and when it is back
// (what happened in between may be lost), and every few minutes as a safety
// net. Only a runtime without a stream is relisted each second. A relist
// is two calls that show all pods at once and wait for no single container, so
// one that hangs stalls nobody (kubernetes/kubernetes#45419).
//
// Healthy says whether the runtime was in contact during the last 3 minutes.
package pleg
