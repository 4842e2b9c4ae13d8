-- Argo CD's health of an object: ENO's own status of it. `make crds` copies this into argocd-cm.yaml for each kind.
local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "the engine has not seen this generation yet" }
end
local ready, stalled, degraded
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Stalled" and condition.status == "True" then
    stalled = condition
  elseif condition.type == "Degraded" and condition.status == "True" then
    degraded = condition
  end
end
if stalled ~= nil then
  return { status = "Degraded", message = stalled.message }
end
if ready ~= nil and ready.status == "True" then
  -- An applied network is assumed to work while a device on its path is unreachable.
  return { status = "Healthy", message = degraded ~= nil and degraded.message or "" }
end
return { status = "Progressing", message = ready ~= nil and ready.message or "" }
