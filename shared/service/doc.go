// Package service is the frame of the three processes: configuration, signals, HTTP (health, readiness, metrics, status) and the
// logger.
package service
