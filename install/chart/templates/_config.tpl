{{/* sluice.config returns the settings of the agent that depend on values, as environment variables. It omits empty values: the agent then uses its default. No value is null; see sluice.setDefaults. */}}
{{- define "sluice.config" -}}
{{- $config := dict
  "CNI_CONF_NAME" .cniConfFileName
  "CHAINED_CNI_PLUGIN" .chained
  "ISTIO_OWNED_CNI_CONFIG" .istioOwnedCNIConfig
  "ISTIO_OWNED_CNI_CONFIG_FILENAME" .istioOwnedCNIConfigFileName
  "EXCLUDE_NAMESPACES" (join "," .excludeNamespaces)
  "SLUICE_ENABLEMENT_SELECTORS" (toJson .enablementSelectors)
  "AMBIENT_ENABLED" .ambient.enabled
  "AMBIENT_ENABLEMENT_SELECTOR" (ternary (toJson .ambient.enablementSelectors) "" (and .ambient.enabled (not (kindIs "invalid" .ambient.enablementSelectors))))
  "AMBIENT_DNS_CAPTURE" .ambient.dnsCapture
  "AMBIENT_IPV6" .ambient.ipv6
  "SLUICE_BACKEND" .backend
  "SLUICE_STRICT_ISTIO" .strictIstio
  "SLUICE_DEVIATIONS_OFF" (join "," .deviationsOff)
  "SLUICE_COUNTERS" .counters
  "SLUICE_UNREADABLE_PODS" .unreadablePods
  "SLUICE_API_BUDGET" .apiBudget
  "SLUICE_API_TRY_TIMEOUT" .apiTryTimeout
  "SLUICE_SERVE" .serve.enabled
  "REPAIR_ENABLED" .repair.enabled
  "REPAIR_REPAIR_PODS" .repair.repairPods
  "REPAIR_DELETE_PODS" .repair.deletePods
  "REPAIR_LABEL_PODS" .repair.labelPods
  "REPAIR_INIT_CONTAINER_NAME" .repair.initContainerName
  "REPAIR_BROKEN_POD_LABEL_KEY" .repair.brokenPodLabelKey
  "REPAIR_BROKEN_POD_LABEL_VALUE" .repair.brokenPodLabelValue
  "SLUICE_AUDIT" .audit.enabled
  "SLUICE_AUDIT_REPAIR" .audit.repair
  "SLUICE_AUDIT_END_CONNECTIONS" .audit.endConnections
  "SLUICE_AUDIT_INTERVAL" .audit.interval
  "SLUICE_COUNTER_METRICS" .counterMetrics.per
  "SLUICE_COUNTER_METRICS_PODS" (int .counterMetrics.topPods)
  "SLUICE_SEARCH_PROC" .searchProc
  "SLUICE_STARTUP_TAINT" .startupTaint
  "SLUICE_RESYNC_INTERVAL" .resyncInterval
  "SLUICE_UNINSTALL_TIMEOUT" .uninstallTimeout
  "SLUICE_LOG_LEVEL" .logLevel
  "SLUICE_LOG_JSON" .global.logAsJson
  "MONITORING_PORT" (int .monitoringPort)
  "SLUICE_HEALTH_PORT" (int .healthPort)
  "SLUICE_HOST_BIN_DIR" .cniBinDir
  "SLUICE_HOST_NET_DIR" .cniConfDir
  "SLUICE_HOST_CACHE_DIR" .cniCacheDir
  "SLUICE_HOST_NETNS_DIR" .cniNetnsDir
-}}
{{- range $name, $value := $config }}
{{- if ne (toString $value) "" }}
{{ $name }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end -}}
