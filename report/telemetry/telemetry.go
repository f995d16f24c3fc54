// Package telemetry exports a run as OpenTelemetry logs, traces and metrics. It
// is the only importer of OpenTelemetry.
//
// A [Sink] takes the records of a run. Nothing is connected and no goroutine is
// started before there is something to send; without an exporter there is no
// sink at all. A collector that is dead, slow or refusing changes nothing about
// the run: what could not be delivered within the bound is counted and reported
// in telemetry.flushed.
package telemetry
